// mean: in the WGSL branch.
