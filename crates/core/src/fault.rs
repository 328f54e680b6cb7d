//! Fault points: places in the code at which a test build can kill its own process. Tests use them to prove that the
//! other processes go on.
//!
//! Without the feature `fault-points`, `fault_point!("heap.free.marked")` is no code at all. With the feature, a
//! process that was armed for this name dies by SIGKILL at that place. Each part of the code has a list of the names
//! of its fault points, for example `heap::POINTS`. A test kills a process at each point and demands that each point
//! was reached.

/// Kills this process here if the process was armed for the fault point of this name.
#[cfg(feature = "fault-points")]
#[macro_export]
macro_rules! fault_point {
    ($name:literal) => {
        $crate::fault::hit($name)
    };
}

/// Does nothing: this build has no fault points.
#[cfg(not(feature = "fault-points"))]
#[macro_export]
macro_rules! fault_point {
    ($name:literal) => {};
}

#[cfg(feature = "fault-points")]
pub use armed::{arm, arm_from_environment, disarm, hit};

#[cfg(feature = "fault-points")]
mod armed {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, MutexGuard};

    use crossdock_os::fork::PerProcess;

    static ARMED: AtomicBool = AtomicBool::new(false);
    /// The fault point that is armed in this process. Each process has a value of its own, because tests fork
    /// children that arm themselves.
    static TARGET: PerProcess<Mutex<Option<(String, u32)>>> = PerProcess::new();

    fn target() -> MutexGuard<'static, Option<(String, u32)>> {
        let own = TARGET.get_or_make(|| Some(Mutex::default())).expect("the closure always makes one");
        own.lock().expect("no holder panics")
    }

    /// Arms a fault point: this process dies when it reaches the point of this name for the `nth` time (counted from
    /// 1).
    pub fn arm(name: &str, nth: u32) {
        *target() = Some((name.to_owned(), nth.max(1)));
        ARMED.store(true, Ordering::Release);
    }

    /// Arms the point that the environment variable `CROSSDOCK_FAULT` names, as `name` or `name:nth`. If the variable
    /// is not set, does nothing.
    pub fn arm_from_environment() {
        if let Ok(text) = std::env::var("CROSSDOCK_FAULT") {
            let (name, nth) = text.split_once(':').unwrap_or((&text, "1"));
            arm(name, nth.parse().unwrap_or(1));
        }
    }

    /// Disarms all fault points, so that none of them kills this process.
    pub fn disarm() {
        ARMED.store(false, Ordering::Release);
    }

    /// The function that `fault_point!` calls.
    #[inline]
    pub fn hit(name: &str) {
        if ARMED.load(Ordering::Acquire) {
            die_if_chosen(name);
        }
    }

    #[cold]
    fn die_if_chosen(name: &str) {
        let mut target = target();
        if let Some((chosen, left)) = target.as_mut() {
            if chosen == name {
                *left -= 1;
                if *left == 0 {
                    crossdock_os::process::kill_self();
                }
            }
        }
    }
}
