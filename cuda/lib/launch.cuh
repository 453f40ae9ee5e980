// How launches overlap: a kernel's blocks may be there before the kernel ahead has ended (programmatic dependent launch, from
// sm_90 on; below, these do nothing and kernels come one after another).
//
// A kernel lets others begin when all before the kernel ahead of it is done: after its own wait, or at once where it
// stands beside the one ahead. So what comes before a wait may read what older kernels wrote, and nothing of the one ahead.
// A kernel that does not wait at its beginning waits before it ends: then whoever waits for it waits for all.

// Waits until the kernel ahead has ended and its writes are seen. The result is zero, which the compiler does not know:
// addresses that it is added to keep their loads behind the wait.
__device__ __forceinline__ unsigned kv_wait_for_others() {
    unsigned zero = 0u;
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\n\tmov.u32 %0, 0;" : "=r"(zero) : : "memory");
#endif
    return zero;
}

// Lets the next kernel's blocks begin once all blocks of this one have said so.
__device__ __forceinline__ void kv_let_others_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
