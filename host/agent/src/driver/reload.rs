//! Looks at the policy folder beside the driver, and tells it of another set. Loading one may take long and stops nobody:
//! neither the driver nor a policy that is being asked.

use std::sync::Arc;
use std::time::Duration;

use moorline_policy::{PolicySet, Reloader};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::effects::Told;
use crate::chain;

/// The set in use from now on, or why another one isn't.
pub(super) type Reloaded = Result<Arc<PolicySet>, String>;

/// Looks every so often, where it is to, and whenever it is asked to.
pub(super) async fn keep_looking(
    mut reloader: Reloader,
    every: Option<Duration>,
    asked: Arc<Notify>,
    started: Instant,
    told: UnboundedSender<Told>,
) {
    loop {
        let by_request = tokio::select! {
            () = asked.notified() => true,
            () = pause(every) => false,
        };
        let now = started.elapsed();
        let looked = spawn_blocking(move || {
            let found = if by_request { Some(reloader.look_now(now)) } else { reloader.look(now) };
            (reloader, found)
        });
        let found = match looked.await {
            Ok((back, found)) => {
                reloader = back;
                found.map(|found| found.map_err(|error| chain(&error)))
            }
            Err(error) => {
                let reason = format!("Loading the policy set failed, and it isn't looked at any more: {error}.");
                // A driver that is gone has nobody to tell, here and below.
                let _ = told.send(Told::Reloaded(Err(reason)));
                return;
            }
        };
        if let Some(found) = found {
            let _ = told.send(Told::Reloaded(found));
        }
    }
}

async fn pause(every: Option<Duration>) {
    match every {
        Some(every) => sleep(every).await,
        None => std::future::pending().await,
    }
}
