            // Of decode.wgsl, within its loop over blocks: s_T_W, the logits of this thread's tokens.
            var live = false;
#for t < TPT
            let index_#{t} = own_token(lid, #{t}u);
            let page_#{t} = pages[first_page + index_#{t} / RUN];
            let token_#{t} = (start + index_#{t}) % PAGE_TOKENS;
            let live_#{t} = token_#{t} < page_#{t}.valid;
            live = live || live_#{t};
#if t%K_UNIT_TOKENS == 0
#if IN_PARTS
            k_part1 = page_#{t}.k_part1;
#endif
            let at_#{t} = k_at(page_#{t}.k_base, token_#{t});
#endif
            // Asked for early: their latency passes with that of the codes.
            let k_scale_#{t} = k_scale(page_#{t}.k_base, token_#{t});
#if V_HALF
            let v_scale_#{t} = v_scale(page_#{t}.v_base, token_#{t});
#else
            let v_scale_#{t} = v_factor * v_scale(page_#{t}.v_base, token_#{t});
#endif
#for w < QUADS
            let seen_#{t}_#{w} = visible4(page_#{t}.first + token_#{t}, query_#{w}) & vec4<bool>(live_#{t});
            var s_#{t}_#{w} = vec4<f32>(EMPTY);
#endfor
#endfor
#if V_HALF
            // The greatest scale of V: weights relative to it stay within f16. A NaN is its own token's matter. No branch:
            // what comes before a subgroup's operation must not part its threads.
            var most = 0.0;
#for t < TPT
            {
                let finite = (bitcast<u32>(v_scale_#{t}) & 0x7fffffffu) < 0x7f800000u;
                var some = seen_#{t}_0;
#for w < QUADS
                some |= seen_#{t}_#{w};
#endfor
                most = max(most, select(0.0, abs(v_scale_#{t}), any(some) & finite));
            }
#endfor
#endif
            if (live) {
#for t < TPT
#for v < CHUNK
#if SUMS_IN_F32
                var sum_#{t}_#{v} = 0.0;
#else
                var sum_#{t}_#{v} = pair(0.0);
#endif
#endfor
#endfor
                for (var unit = 0u; unit < K_UNITS; unit += K_FLIGHT) {
                    // Several loads are under way at a time: one after another, their latency would be all there is.
#for f < K_FLIGHT
#for s < K_FETCHES
                    let k_#{f}_#{s} = k_fetch(at_#{s*K_UNIT_TOKENS}, unit + #{f}u);
#endfor
#endfor
#if K_LONG
#for t < TPT
#for v < CHUNK
                    var part_#{t}_#{v} = pair(0.0);
#endfor
#endfor
#endif
#for f < K_FLIGHT
#for part < K_PARTS
                    {
#if SUMS_IN_F32
#if !K_LONG
#for t < TPT
#for v < CHUNK
                    var part_#{t}_#{v} = pair(0.0);
#endfor
#endfor
#endif
#endif
#for p < K_PART_STEPS
                    {
#for v < CHUNK
                        let query_#{v} = queries[((unit + #{f}u) * K_STEPS + #{part*K_PART_STEPS+p}u) * CHUNK + #{v}u];
#if HALF
#for i < 4
                        let query_#{v}_#{i} = pair(unpack2x16float(query_#{v}[#{i}]));
#endfor
#else
                        let query_#{v}_0 = query_#{v}.xy;
                        let query_#{v}_1 = query_#{v}.zw;
#endif
#endfor
#for t < TPT
#for i < K_STEP_PAIRS
                        {
                            let x = k_pair(k_#{f}_#{t/K_UNIT_TOKENS}, #{t%K_UNIT_TOKENS}u, #{part*K_PART_STEPS*K_STEP_PAIRS+p*K_STEP_PAIRS+i}u);
#for v < CHUNK
#if SUMS_IN_F32
                            part_#{t}_#{v} = fma(query_#{v}_#{i}, x, part_#{t}_#{v});
#else
                            sum_#{t}_#{v} = fma(query_#{v}_#{i}, x, sum_#{t}_#{v});
#endif
#endfor
                        }
#endfor
#endfor
                    }
#endfor
#if SUMS_IN_F32
#if !K_LONG
#for t < TPT
#if K_SCALED
                    let unit_scale_#{t} = k_unit_scale(k_#{f}_#{t/K_UNIT_TOKENS});
#endif
#for v < CHUNK
#if K_SCALED
                    sum_#{t}_#{v} += unit_scale_#{t} * (f32(part_#{t}_#{v}.x) + f32(part_#{t}_#{v}.y));
#else
                    sum_#{t}_#{v} += f32(part_#{t}_#{v}.x) + f32(part_#{t}_#{v}.y);
#endif
#endfor
#endfor
#endif
#endif
                    }
#endfor
#endfor
#if K_LONG
#for t < TPT
#for v < CHUNK
                    sum_#{t}_#{v} += f32(part_#{t}_#{v}.x) + f32(part_#{t}_#{v}.y);
#endfor
#endfor
#endif
                }
#for t < TPT
#for v < CHUNK
#if SUMS_IN_F32
                s_#{t}_#{v/4}[#{v%4}] = sum_#{t}_#{v};
#else
                s_#{t}_#{v/4}[#{v%4}] = sum_#{t}_#{v}.x + sum_#{t}_#{v}.y;
#endif
#endfor
#for w < QUADS
                s_#{t}_#{w} = finish(s_#{t}_#{w}, k_scale_#{t} * scale_#{w}, bias_#{w}, seen_#{t}_#{w});
#endfor
#endfor
            }
