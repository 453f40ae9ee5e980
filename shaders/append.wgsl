// append: in the WGSL branch.
