//! Kernels: one file each, declaration and CPU code together; the WGSL has the same stem in `shaders/`.
