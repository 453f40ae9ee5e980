//! Words of masks, and what they do to limits.

use super::*;

#[test]
fn words_are_read() {
    let plain = LimitMask::default();
    assert_eq!(LimitMask::parse("adapter").unwrap(), plain);
    assert!(masked(&plain, Without::default()).is_empty());
    let mask = LimitMask::parse("max_binding_bytes=1MiB, webgpu-default,max_workgroups_per_dimension=2000").unwrap();
    let without = Without::parse("subgroups, f16").unwrap();
    let words = ["limits=webgpu-default", "max_binding_bytes=1048576", "max_workgroups_per_dimension=2000"];
    assert_eq!(masked(&mask, without)[..3], words);
    assert_eq!(masked(&mask, without)[3..], ["without f16", "without subgroups"]);
    assert_eq!(number("4 GiB"), Some(4 << 30));
    for bad in ["", "MiB", "+1", "-1", "1.5MiB", "1 MB", "99999999999999999999", "99999999999GiB", "1é"] {
        assert_eq!(number(bad), None, "{bad}");
    }
}

#[test]
fn what_cannot_be_meant_is_told_with_the_nearest_word() {
    for (text, said) in [
        ("webgpu-defaults", "did you mean `webgpu-default`?"),
        ("max_binding_byte=1MiB", "did you mean `max_binding_bytes`?"),
        ("max_binding_bytes", "has no value"),
        ("max_binding_bytes=much", "KiB"),
        ("max_binding_bytes=1KiB", "give at least 1048576"),
        ("max_invocations=255", "give at least 256"),
        ("max_workgroups_per_dimension=0", "give at least 1024"),
        ("adapter,webgpu-default", "twice"),
        ("max_invocations=256,max_invocations=512", "twice"),
        ("", "webgpu-default"),
    ] {
        let error = LimitMask::parse(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage, "{text}");
        assert!(error.to_string().contains(said), "{text}: {error}");
    }
    for (text, said) in [("fp16", "did you mean `f16`?"), ("", "f16, subgroups, timestamps"), ("f16,sub", "sub")] {
        let error = Without::parse(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage, "{text}");
        assert!(error.to_string().contains(said), "{text}: {error}");
    }
}

#[test]
fn a_mask_only_takes_away() {
    let offered = wgpu::Limits {
        max_compute_workgroup_storage_size: 49152,
        max_storage_buffer_binding_size: 2 << 30,
        max_buffer_size: 4 << 30,
        ..wgpu::Limits::defaults()
    };
    let over = |text: &str| LimitMask::parse(text).unwrap().over(&offered, "card");
    let limits = over("adapter").unwrap();
    assert!(Limit::ALL.iter().all(|l| l.of(&limits) == l.of(&offered)), "{limits:?}");
    let limits = over("webgpu-default").unwrap();
    assert!(Limit::ALL.iter().all(|l| l.of(&limits) == l.of(&wgpu::Limits::defaults())), "{limits:?}");
    let limits = over("webgpu-default,max_workgroup_bytes=32KiB,max_binding_bytes=1MiB").unwrap();
    assert_eq!((limits.max_compute_workgroup_storage_size, limits.max_storage_buffer_binding_size), (32768, 1 << 20));
    assert_eq!(limits.max_buffer_size, 256 << 20);
    let error = over("max_binding_bytes=3GiB").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let said = error.to_string();
    assert!(["max_binding_bytes=3221225472", "card", "2147483648"].iter().all(|w| said.contains(w)), "{said}");
    let error = LimitMask::default().with(Limit::BufferBytes, 5).over(&offered, "card").unwrap_err();
    assert!(error.message().contains("max_buffer_bytes=5"), "{error}");
}
