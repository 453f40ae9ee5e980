//! What comes after a device is lost: errors, never zeros and never a panic.
#![cfg(feature = "wgpu")]

mod support;

use kvarto::backend::wgpu::OpenOptions;
use kvarto::backend::{Backend, Recording, block_on};
use kvarto::{Error, ErrorKind, wgpu};
use support::gpu::{APIS, open};
use support::require_or_skip;

fn expect_loss(error: Error) {
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(!error.remedy().is_empty());
}

#[test]
fn every_call_after_a_loss_is_an_error() {
    for api in APIS {
        let mut backend = match open(api, &OpenOptions::default()) {
            Ok(backend) => backend,
            Err(error) => {
                require_or_skip(api, &error.to_string());
                continue;
            }
        };
        let id = backend.alloc("data", 1024).unwrap();
        backend.write(id, 0, &[7; 1024]).unwrap();
        let submitted = backend.submit(Recording::new()).unwrap();
        let before = block_on(backend.read(id, 0, 1024).unwrap()).unwrap();
        assert_eq!(before, vec![7; 1024]);
        assert!(submitted.0 > 0);

        backend.lose_for_test();
        expect_loss(backend.poll().unwrap_err());
        expect_loss(backend.submit(Recording::new()).unwrap_err());
        expect_loss(backend.read(id, 0, 1024).err().unwrap());
        expect_loss(backend.write(id, 0, &[1; 4]).unwrap_err());
        expect_loss(backend.alloc("more", 16).unwrap_err());
        expect_loss(backend.take_times().unwrap_err());
        backend.free(id);

        // A new one serves in the same process.
        drop(backend);
        let mut backend = open(api, &OpenOptions::default()).unwrap();
        let id = backend.alloc("data", 16).unwrap();
        backend.write(id, 0, &[9; 16]).unwrap();
        assert_eq!(block_on(backend.read(id, 0, 16).unwrap()).unwrap(), [9; 16]);
    }
}

#[test]
fn a_loss_that_nobody_noticed_yet_still_fails_the_read() {
    for api in APIS {
        let Ok(mut backend) = open(api, &OpenOptions::default()) else {
            require_or_skip(api, "no adapter");
            continue;
        };
        let id = backend.alloc("data", 1 << 20).unwrap();
        backend.write(id, 0, &vec![7; 1 << 20]).unwrap();
        let read = backend.read(id, 0, 1 << 20).unwrap();
        backend.lose_for_test();
        // The copy was submitted before the loss: either its bytes or an error, and no wait without end.
        match block_on(read) {
            Ok(bytes) => assert!(bytes == vec![7; 1 << 20]),
            Err(error) => expect_loss(error),
        }
        expect_loss(backend.read(id, 0, 16).and_then(block_on).unwrap_err());
    }
}

#[test]
fn reports_that_a_caller_hands_on_count() {
    for api in APIS {
        let Ok(mut backend) = open(api, &OpenOptions { take_callbacks: false, ..OpenOptions::default() }) else {
            require_or_skip(api, "no adapter");
            continue;
        };
        let id = backend.alloc("data", 16).unwrap();
        let sink = backend.error_sink();
        let source = Box::new(std::io::Error::other("planted"));
        sink.uncaptured(&wgpu::Error::Validation { source, description: "planted".into() });
        let error = backend.read(id, 0, 16).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(error.message().contains("planted"), "{error}");
        sink.lost(wgpu::DeviceLostReason::Unknown, "unplugged");
        let error = backend.submit(Recording::new()).unwrap_err();
        assert!(error.message().contains("unplugged"), "{error}");
        expect_loss(error);
    }
}
