// Maxima and sums over a workgroup, four numbers at a time. SUBGROUP says how: 0 by workgroup memory alone,
// 1 by the device's subgroups, another power of two by subgroups of that many threads that workgroup memory
// plays, to test a kernel for sizes that a device does not have. The kernel defines WORKGROUP, QUADS and
// `weights`, vectors in workgroup memory, WORKGROUP * QUADS or more, which serve as scratch here.

struct Team {
    lid: u32,
    // This thread's place in its subgroup, its subgroup, and how many there are.
    lane: u32,
    subgroup: u32,
    subgroups: u32,
}

#if SUBGROUP == 0
const TEAMS: u32 = 16u;
#elif SUBGROUP == 1
#enable subgroups
// Subgroups have 4 threads or more.
const TEAMS: u32 = WORKGROUP / 4u;
#else
const TEAMS: u32 = max(WORKGROUP / SUBGROUP, 1u);
const LANES: u32 = min(SUBGROUP, WORKGROUP);
#endif

#unzeroed
var<workgroup> team_values: array<vec4<f32>, TEAMS * QUADS>;
#if V_HALF
var<workgroup> team_mosts: array<f32, TEAMS>;
#if SUBGROUP != 1
var<workgroup> mosts: array<f32, WORKGROUP>;
#endif
#endif

#if SUBGROUP != 1
fn team_of(lid: u32) -> Team {
#if SUBGROUP == 0
    return Team(lid, lid / TEAMS, lid % TEAMS, TEAMS);
#else
    return Team(lid, lid % LANES, lid / LANES, TEAMS);
#endif
}
#endif

// Hands in a thread's values, number `which` below QUADS. A barrier follows, then `gather_maxima`.
fn set_maximum(team: Team, which: u32, value: vec4<f32>) {
#if SUBGROUP == 1
    let top = subgroupMax(value);
    if (team.lane == 0u) {
        team_values[team.subgroup * QUADS + which] = top;
    }
#else
    weights[team.lid * QUADS + which] = value;
#endif
}

#if V_HALF
// The same for one number that is not negative.
fn set_most(team: Team, value: f32) {
#if SUBGROUP == 1
    let top = subgroupMax(value);
    if (team.lane == 0u) {
        team_mosts[team.subgroup] = top;
    }
#else
    mosts[team.lid] = value;
#endif
}

fn most_of(team: Team) -> f32 {
    var top = team_mosts[0];
    for (var i = 1u; i < team.subgroups; i++) {
        top = max(top, team_mosts[i]);
    }
    return top;
}
#endif

// Called by all threads, in uniform control flow, between a barrier and `maximum`.
fn gather_maxima(team: Team) {
#if SUBGROUP != 1
    for (var i = team.lid; i < TEAMS * QUADS; i += WORKGROUP) {
#if SUBGROUP == 0
        var top = weights[i];
        for (var j = i + TEAMS * QUADS; j < WORKGROUP * QUADS; j += TEAMS * QUADS) {
            top = max(top, weights[j]);
        }
#else
        var top = weights[i / QUADS * LANES * QUADS + i % QUADS];
        for (var j = 1u; j < LANES; j++) {
            top = max(top, weights[(i / QUADS * LANES + j) * QUADS + i % QUADS]);
        }
#endif
        team_values[i] = top;
    }
#if V_HALF
    for (var i = team.lid; i < TEAMS; i += WORKGROUP) {
        var most = 0.0;
#if SUBGROUP == 0
        for (var j = i; j < WORKGROUP; j += TEAMS) {
            most = max(most, mosts[j]);
        }
#else
        for (var j = 0u; j < LANES; j++) {
            most = max(most, mosts[i * LANES + j]);
        }
#endif
        team_mosts[i] = most;
    }
#endif
    workgroupBarrier();
#endif
}

fn maximum(team: Team, which: u32) -> vec4<f32> {
    var top = team_values[which];
    for (var i = 1u; i < team.subgroups; i++) {
        top = max(top, team_values[i * QUADS + which]);
    }
    return top;
}

// Sums over the workgroup. All threads call it, in uniform control flow.
fn team_sum(team: Team, value: vec4<f32>) -> vec4<f32> {
    workgroupBarrier();
#if SUBGROUP == 1
    let part = subgroupAdd(value);
    if (team.lane == 0u) {
        team_values[team.subgroup] = part;
    }
#else
    weights[team.lid] = value;
    workgroupBarrier();
    if (team.lid < TEAMS) {
#if SUBGROUP == 0
        var sum = weights[team.lid];
        for (var j = team.lid + TEAMS; j < WORKGROUP; j += TEAMS) {
            sum += weights[j];
        }
#else
        var sum = weights[team.lid * LANES];
        for (var j = 1u; j < LANES; j++) {
            sum += weights[team.lid * LANES + j];
        }
#endif
        team_values[team.lid] = sum;
    }
#endif
    workgroupBarrier();
    var sum = team_values[0];
    for (var i = 1u; i < team.subgroups; i++) {
        sum += team_values[i];
    }
    return sum;
}
