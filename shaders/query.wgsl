// query: in the WGSL branch.
