            // Of decode.wgsl, within its loop over blocks: the block's values, weighted, into o_V_H.
#if V_HALF
#for v < CHUNK
#for i < V_HALVES
            var half_#{v}_#{i} = vec2<f16>(0.0h);
#endfor
#endfor
#endif
            // Values of this thread's channels and slice, page by page.
            if (slice < SLICES) {
                let c4 = column * V_QUADS;
                let token0 = start % PAGE_TOKENS;
                for (var p = 0u; p < PAGES; p++) {
                    let page = pages[first_page + p];
#if IN_PARTS
                    v_part1 = page.v_part1;
#endif
                    let here = min(max(page.valid, token0) - token0, RUN);
                    let low = page.first + token0;
#if V_UNIT_TOKENS == 1
                    let whole = here > 0u;
                    let units = here;
#else
                    let whole = here == RUN;
                    let units = RUN_UNITS;
#endif
#if WINDOW
                    let all_seen = whole && low + here - 1u <= first_query && last_query - low < params.window;
#else
                    let all_seen = whole && low + here - 1u <= first_query;
#endif
                    if (all_seen) {
                        let unit0 = token0 / V_UNIT_TOKENS;
                        let column_at = v_at(page.v_base, c4);
                        var unit = slice;
                        // First V_FLIGHT units at a time, then one.
#for turn < V_TURNS
                        for (; unit + #{V_FLIGHT-turn*V_FLIGHT+turn-1}u * SLICES < units; unit += #{V_FLIGHT-turn*V_FLIGHT+turn}u * SLICES) {
#for f < V_FLIGHT-turn*V_FLIGHT+turn
                            let v_#{f} = v_fetch(column_at, unit0 + unit + #{f}u * SLICES);
#endfor
#for f < V_FLIGHT-turn*V_FLIGHT+turn
                            {
#if V_HALF
#if TWINS > 0
                                let first = half_at(p * RUN + v_token(unit0 + unit + #{f}u * SLICES, 0u) - token0);
#for k < V_UNIT_TOKENS/2
                                {
                                    let twins = v_twins(v_#{f}, #{k}u);
                                    let at = first + half_at(v_token(0u, #{2*k}u) - v_token(0u, 0u));
#for v < CHUNK
#if v%2 == 0
                                    let weight_#{v/2} = halves[at + #{v/2}u];
#endif
#for i < 4
#if v%2 == 0
                                    half_#{v}_#{i} = fma(weight_#{v/2}.xy, twins.c#{i}, half_#{v}_#{i});
#else
                                    half_#{v}_#{i} = fma(weight_#{v/2}.zw, twins.c#{i}, half_#{v}_#{i});
#endif
#endfor
#endfor
                                }
#endfor
#else
                                let first = (p * RUN + v_token(unit0 + unit + #{f}u * SLICES, 0u) - token0) * QUADS;
#for k < V_UNIT_TOKENS
                                {
                                    let at = first + (v_token(0u, #{k}u) - v_token(0u, 0u)) * QUADS;
#for w < QUADS
                                    let weight_#{w} = halves[at + #{w}u];
#endfor
#for h < V_QUADS
                                    {
                                        let value = v_halves(v_#{f}, #{k}u, #{h}u);
#for v < CHUNK
                                        half_#{v}_#{2*h} = fma(vec2<f16>(weight_#{v/4}[#{v%4}]), value.even, half_#{v}_#{2*h});
                                        half_#{v}_#{2*h+1} = fma(vec2<f16>(weight_#{v/4}[#{v%4}]), value.odd, half_#{v}_#{2*h+1});
#endfor
                                    }
#endfor
                                }
#endfor
#endif
#else
                                let first = (p * RUN + v_token(unit0 + unit + #{f}u * SLICES, 0u) - token0) * QUADS;
#for k < V_UNIT_TOKENS/V_STEP
                                {
#if V_STEP == 2
                                let twins = v_twins(v_#{f}, #{k}u);
                                let value_0_0 = vec4<f32>(vec4<stored>(twins.c0.x, twins.c1.x, twins.c2.x, twins.c3.x));
                                let value_1_0 = vec4<f32>(vec4<stored>(twins.c0.y, twins.c1.y, twins.c2.y, twins.c3.y));
#else
#for h < V_QUADS
                                let value_0_#{h} = v_quad(v_#{f}, #{k}u, #{h}u);
#endfor
#endif
#for j < V_STEP
                                let at_#{j} = first + (v_token(0u, #{k*V_STEP+j}u) - v_token(0u, 0u)) * QUADS;
#for w < QUADS
                                let weight_#{j}_#{w} = weights[at_#{j} + #{w}u];
#endfor
#for h < V_QUADS
#for v < CHUNK
                                o_#{v}_#{h} = fma(vec4<f32>(weight_#{j}_#{v/4}[#{v%4}]), value_#{j}_#{h}, o_#{v}_#{h});
#endfor
#endfor
#endfor
                                }
#endfor
#endif
                            }
#endfor
                        }
#endfor
                    } else {
                        // Some vector does not see some token: its value is dropped, not multiplied by 0.
                        for (var t = slice; t < here; t += SLICES) {
#if !V_HALF
                            let at = (p * RUN + t) * QUADS;
#endif
#for w < QUADS
                            let seen_#{w} = visible4(low + t, query_#{w});
#if V_HALF
                            var weight_#{w} = vec4<f32>(0.0);
#else
                            let weight_#{w} = weights[at + #{w}u] / v_factor;
#endif
#endfor
#if V_HALF
#for v < CHUNK
                            weight_#{v/4}[#{v%4}] = half_of(p * RUN + t, #{v}u) * up;
#endfor
#endif
#for h < V_QUADS
                            let value_#{h} = v_load4(page.v_base, token0 + t, c4 + #{h}u);
#for v < CHUNK
                            o_#{v}_#{h} += weight_#{v/4}[#{v%4}] * select(vec4<f32>(0.0), value_#{h}, seen_#{v/4}[#{v%4}]);
#endfor
#endfor
                        }
                    }
                }
            }
#if V_HALF
            let own = v_factor * up;
#for v < CHUNK
#if TWINS > 0
            o_#{v}_0 = fma(vec4<f32>(own), vec4<f32>(vec4<f16>(half_#{v}_0.x, half_#{v}_1.x, half_#{v}_2.x, half_#{v}_3.x))
                + vec4<f32>(vec4<f16>(half_#{v}_0.y, half_#{v}_1.y, half_#{v}_2.y, half_#{v}_3.y)), o_#{v}_0);
#else
#for h < V_QUADS
            o_#{v}_#{h} = fma(vec4<f32>(own), vec4<f32>(vec4<f16>(half_#{v}_#{2*h}.x, half_#{v}_#{2*h+1}.x,
                half_#{v}_#{2*h}.y, half_#{v}_#{2*h+1}.y)), o_#{v}_#{h});
#endfor
#endif
#endfor
#endif
