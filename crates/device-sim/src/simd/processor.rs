//! Which version of the vector code this processor runs. Vector code is written once and compiled
//! twice: for any processor, and for one with AVX2 and FMA. The choice is made once in a process.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// True if this processor can run the versions with AVX2 and FMA.
pub fn is_fast() -> bool {
    static FAST: OnceLock<bool> = OnceLock::new();
    *FAST.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> bool {
    // Tests and measurements of the portable version set this.
    if std::env::var_os("CUMUX_SIM_BASELINE").is_some() {
        return false;
    }
    std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("fma")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("lzcnt")
        && std::is_x86_feature_detected!("popcnt")
        && std::is_x86_feature_detected!("f16c")
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> bool {
    false
}

/// Work that is faster with the processor's vector instructions. Mark `run` as `#[inline(always)]`.
pub trait VectorCode {
    type Out;
    fn run(self) -> Self::Out;
}

/// Does the work, in the version for this processor.
#[inline(always)]
pub fn run_fastest<B: VectorCode>(body: B) -> B::Out {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
        fn run_fast<B: VectorCode>(body: B) -> B::Out {
            body.run()
        }
        if is_fast() {
            // SAFETY: `is_fast` has checked that the processor has these features.
            return unsafe { run_fast(body) };
        }
    }
    #[inline(never)]
    fn run_plain<B: VectorCode>(body: B) -> B::Out {
        body.run()
    }
    run_plain(body)
}
