//! Logging through the host, which keeps what its level and caps allow.
//! Outside WebAssembly (native tests) lines go to standard error.

pub use crate::bindings::shared::moorline::policy::host_log::Level;

/// Whether the host would keep a line of this level.
#[must_use]
pub fn enabled(level: Level) -> bool {
    #[cfg(target_arch = "wasm32")]
    return crate::bindings::shared::moorline::policy::host_log::enabled(level);
    #[cfg(not(target_arch = "wasm32"))]
    return {
        let _ = level;
        true
    };
}

/// Logs one line. The macros ([`info!`](crate::info) and its kin) format only what would be kept.
pub fn log(level: Level, message: &str) {
    #[cfg(target_arch = "wasm32")]
    crate::bindings::shared::moorline::policy::host_log::log(level, message);
    #[cfg(not(target_arch = "wasm32"))]
    eprintln!("{level:?}: {message}");
}

/// Makes a panic log its text and place before the trap, which by itself says neither.
pub fn log_panics() {
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(|panic| log(Level::Error, &panic.to_string())));
}

macro_rules! level {
    ($name:ident, $Level:ident, $dollar:tt) => {
        #[doc = concat!("Logs at level `", stringify!($name), "`, formatting only what the host would keep.")]
        #[macro_export]
        macro_rules! $name {
                                    ($dollar($dollar argument:tt)+) => {
                                        if $crate::enabled($crate::Level::$Level) {
                                            $crate::log($crate::Level::$Level, &format!($dollar($dollar argument)+));
                                        }
                                    };
                                }
    };
}

level!(trace, Trace, $);
level!(debug, Debug, $);
level!(info, Info, $);
level!(warn, Warn, $);
level!(error, Error, $);
