//! One watch on one object, from its opening to its end. It never opens a second one: what comes after an end is the
//! life's to decide.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use moorline_lifecycle::{Failure, FailureKind, Stream};
use serde::Deserialize;
use serde_json::Value;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};
use tokio_util::io::StreamReader;

use super::classify;
use super::objects::{self, Wire};
use super::target::{Target, Verb};
use super::{ANSWER_CAP, Cluster};
use crate::chain;

/// Marks the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "/metadata/annotations/k8s.io~1initial-events-end";

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

impl Cluster {
    /// Watches one object until the stream ends; `tell` hears everything, the end last.
    pub(super) async fn watch<T: Wire>(
        &self,
        target: Target,
        from: Option<String>,
        lifetime: Duration,
        mut tell: impl FnMut(Stream<T>),
    ) {
        let end = match self.follow(&target, from.as_deref(), lifetime, &mut tell).await {
            Ok(()) => Stream::Closed,
            Err(failure) => Stream::Failed(failure),
        };
        tell(end);
    }

    async fn follow<T: Wire>(
        &self,
        target: &Target,
        from: Option<&str>,
        lifetime: Duration,
        tell: &mut impl FnMut(Stream<T>),
    ) -> Result<(), Failure> {
        let response = self.open(Verb::Watch, target, &target.watch(from, lifetime.as_secs().max(1)), None).await?;
        let body = response.into_body().into_data_stream().map_err(std::io::Error::other);
        let mut lines = FramedRead::new(StreamReader::new(body), LinesCodec::new_with_max_length(ANSWER_CAP));
        loop {
            let line = match tokio::time::timeout(self.timeouts.idle, lines.next()).await {
                Ok(Some(Ok(line))) => line,
                Ok(None) => return Ok(()),
                Ok(Some(Err(LinesCodecError::MaxLineLengthExceeded))) => {
                    return Err(classify::broken(
                        FailureKind::Unavailable,
                        target,
                        &format!("an event is longer than {ANSWER_CAP} bytes"),
                    ));
                }
                Ok(Some(Err(LinesCodecError::Io(error)))) => {
                    return Err(classify::broken(FailureKind::Unavailable, target, &chain(&error)));
                }
                Err(_) => {
                    let silence = format!("nothing was heard for {:?}, not even a bookmark", self.timeouts.idle);
                    return Err(classify::broken(FailureKind::Timeout, target, &silence));
                }
            };
            tell(translate(target, &line)?);
        }
    }
}

/// What one line of the stream says.
fn translate<T: Wire>(target: &Target, line: &str) -> Result<Stream<T>, Failure> {
    let broken = |what: String| classify::broken(FailureKind::Unavailable, target, &what);
    let Line { kind, object } =
        serde_json::from_str(line).map_err(|error| broken(format!("an event is not readable: {error}")))?;
    match kind.as_str() {
        "ADDED" | "MODIFIED" => objects::read(target, object).map(Stream::Changed).map_err(broken),
        "DELETED" => objects::read::<T>(target, object).map(|_| Stream::Deleted).map_err(broken),
        "BOOKMARK" => match object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
            Some(version) if !version.is_empty() => Ok(Stream::Bookmark {
                resource_version: version.into(),
                initial: object.pointer(INITIAL_EVENTS_END).is_some_and(|mark| mark == "true"),
            }),
            _ => Err(broken("a bookmark has no resourceVersion".into())),
        },
        "ERROR" => match serde_json::from_value(object) {
            Ok(status) => Err(classify::error_event(target, &status)),
            Err(error) => Err(broken(format!("an error event is not readable: {error}"))),
        },
        other => Err(broken(format!("the kind of an event is {other:?}"))),
    }
}
