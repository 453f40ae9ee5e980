//! Ctrl-C: a wish to stop, and at the second time an end.

use kvarto::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set from the first Ctrl-C (or termination) on. The second one ends the program with 130, which commands can bear: what they
/// write is put in place whole.
///
/// # Errors
/// `File` where the system lets nobody listen.
pub fn wish_to_stop() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let heard = move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    };
    ctrlc::set_handler(heard)
        .map_err(|e| Error::new(ErrorKind::File, format!("Ctrl-C cannot be listened to: {e}"), ""))?;
    Ok(stop)
}
