// merge: in the WGSL branch.
