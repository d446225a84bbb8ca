//! Work that blocks its thread: policy calls, the ledger, the CNI file. One thing at a time, in the order in which it was
//! wanted, so that nothing here ever races another and the same life makes the same steps. Nothing here decides.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_blocking;

type Work = Box<dyn FnOnce() + Send>;

/// Where blocking work is handed in.
pub(super) struct Lane(UnboundedSender<Work>);

impl Lane {
    /// A lane, and the task that does its work. The task panics where work panics.
    pub(super) fn new() -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (lane, work) = unbounded_channel();
        (Self(lane), drain(work))
    }

    /// Has this done after what was handed in before. Begun work comes to its end even when the driver is gone.
    pub(super) fn hand_in(&self, work: impl FnOnce() + Send + 'static) {
        // The task is gone only with the driver.
        let _ = self.0.send(Box::new(work));
    }
}

async fn drain(mut lane: UnboundedReceiver<Work>) {
    while let Some(work) = lane.recv().await {
        if let Err(error) = spawn_blocking(work).await
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}
