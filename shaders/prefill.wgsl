// prefill: in the WGSL branch.
