// copy_slots: in the WGSL branch.
