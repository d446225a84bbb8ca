//! One module for each hook: its types, and the trait that answers it with settings already read.
//! Nothing here decides anything.

use std::marker::PhantomData;

/// What the generated exports are attached to: a policy, with its settings read from JSON.
pub struct Exported<P>(PhantomData<P>);

macro_rules! hook {
    ($module:ident { $($Type:ident),+ } $(#[$doc:meta])* $function:ident($input:ident: $Input:ty)) => {
        $(#[$doc])*
        pub mod $module {
            #[allow(unused_imports, reason = "a hook's input may be one of the shared types")]
            use crate::{Node, Policy, PolicyError, bindings, hooks::Exported, log, settings};

            pub use crate::bindings::$module::{$($Type),+};

            $(#[$doc])*
            pub trait Hook: Policy {
                /// Answers the hook. `NotApplicable` passes the question on to the next binding.
                ///
                /// # Errors
                ///
                /// The reason why there is no verdict; what happens then is up to the binding.
                fn $function($input: $Input, settings: Self::Settings) -> Result<Verdict, PolicyError>;
            }

            impl<P: Hook> bindings::$module::Guest for Exported<P> {
                fn $function($input: $Input, settings: String) -> Result<Verdict, PolicyError> {
                    log::log_panics();
                    P::$function($input, settings::read(&settings)?)
                }
            }
        }
    };
}

hook! { adoption { Assigned, Verdict }
    /// Which assignment does this Node have?
    adopt(node: Node)
}
hook! { drift { Observation, Verdict }
    /// Does what is observed oblige the process to end and start anew?
    assess(observation: Observation)
}
hook! { retry { Attempt, Pause, Verdict }
    /// How long to wait before the next try?
    next(attempt: Attempt)
}
hook! { taints { Removal, Subject, Verdict }
    /// Which taints must be gone before the assignment is acknowledged?
    unwanted(subject: Subject)
}
hook! { cni { ManagedConfiguration, Subject, Verdict }
    /// Which CNI configuration does this Site want on this Node?
    render(subject: Subject)
}
hook! { acknowledgment { Subject, Verdict }
    /// What does the record on the agent's own Pod say, beside the host's own fields?
    annotate(subject: Subject)
}
