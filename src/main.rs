//! Starts the command line, nothing else.

#![deny(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    quiet_device_select();
    cli::main()
}

/// Mesa's Vulkan layer for choosing a desktop's default GPU looks for a compositor, and its Wayland library writes
/// errors to standard error where there can be none. There the layer has nothing to say: it is left out.
#[allow(unsafe_code)]
fn quiet_device_select() {
    let set = |name| std::env::var_os(name).is_some();
    if cfg!(target_os = "linux") && !set("XDG_RUNTIME_DIR") && !set("MESA_VK_DEVICE_SELECT") && !set("NODEVICE_SELECT")
    {
        // SAFETY: the first thing that the program does: no other thread reads the environment yet.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}
