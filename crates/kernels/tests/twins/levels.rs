use lookalike_kernels::{Cpu, CpuError};

use crate::levels;

#[test]
fn every_level_is_found_by_its_name() {
    for cpu in levels() {
        assert_eq!(Cpu::named(cpu.name()), Ok(cpu));
    }
    assert!(levels().contains(&Cpu::portable()));
    assert!(levels().contains(&Cpu::detect()));
    assert!(levels().is_sorted());
}

/// Detection takes the best level where the named one is missing: tests that are run
/// at a level must not pass at another.
#[test]
fn the_level_that_the_environment_names_is_used() {
    if let Ok(name) = std::env::var("LOOKALIKE_CPU") {
        assert_eq!(Cpu::detect().name(), name);
    }
}

#[test]
fn unknown_level_is_named_with_those_that_exist() {
    let error = Cpu::named("sse9").unwrap_err();
    assert_eq!(error, CpuError::Unknown { name: "sse9".into() });
    let message = error.to_string();
    for part in ["sse9", "portable", "avx2", "avx512", "avx512-bf16", "LOOKALIKE_CPU"] {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
}

#[test]
fn missing_level_is_told_apart_from_an_unknown_one() {
    for name in ["avx2", "avx512", "avx512-bf16"] {
        match Cpu::named(name) {
            Ok(cpu) => assert!(Cpu::available().contains(&cpu)),
            Err(error) => {
                assert!(matches!(error, CpuError::Unavailable { .. }), "{error}");
                assert!(!Cpu::available().iter().any(|cpu| cpu.name() == name));
            }
        }
    }
}
