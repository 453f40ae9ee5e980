// decode: in the WGSL branch.
