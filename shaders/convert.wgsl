// convert: in the WGSL branch.
