//! A Kubernetes API server in memory, and scenarios that run an agent against it in virtual time. For `moorline simulate`,
//! for tests, and for many agents on one machine. It knows nothing of the agent.

pub mod scenario;
pub mod server;
