//! The HTTP side: a tower service per caller, faults on the way in and out, audit records. What a request means is
//! decided elsewhere.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Limited};

use super::{
    Answer, Effect, Fault, Identity, Server,
    handle::{Refused, Reply},
    request::Ask,
    status,
    watch::{StreamFault, WatchBody},
};

/// The largest body that a request may have.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// A caller's way to the server: a tower service that `kube::Client::new` takes.
#[derive(Clone, Debug)]
pub struct Connection {
    server: Server,
    identity: Identity,
}

impl Connection {
    pub(crate) fn new(server: Server, identity: Identity) -> Self {
        Self { server, identity }
    }
}

impl<B> tower::Service<Request<B>> for Connection
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    type Response = Response<AnswerBody>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<AnswerBody>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(answer(self.server.clone(), self.identity.clone(), request))
    }
}

/// A request on its way: completes its audit record when it is dropped, whoever drops it.
#[derive(Debug)]
pub(crate) struct Call {
    server: Server,
    record: u64,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.server.completed(self.record);
    }
}

async fn answer<B>(server: Server, identity: Identity, request: Request<B>) -> io::Result<Response<AnswerBody>>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    let (parts, body) = request.into_parts();
    let ask = Ask::parse(&parts.method, &parts.uri, identity.name());
    let (record, fault) = server.received(&ask.attributes, &parts.uri);
    let call = Call { server: server.clone(), record };
    let body = match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(status::entity_too_large(BODY_LIMIT)),
        Err(error) => return Err(io::Error::other(error)),
    };
    let Fault { before, after, effect, .. } = fault;
    hold(before).await;
    match effect {
        Effect::LostRequest => return Err(lost()),
        Effect::Answer(answer) => return Ok(respond(&call, answer)),
        _ => {}
    }
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let reply = server.handle(record, &ask, &identity, content_type, body.as_deref().map_err(Clone::clone));
    hold(after).await;
    match (reply, effect) {
        (_, Effect::LostAnswer) => Err(lost()),
        (_, Effect::AnswerAfterEffect(answer)) => Ok(respond(&call, answer)),
        (Ok(Reply::Watch(plan)), effect) => {
            let fault = match effect {
                Effect::HalfBody => StreamFault::Half,
                Effect::Stream { after, interruption } => StreamFault::After(after, interruption),
                _ => StreamFault::None,
            };
            let mut response =
                Response::new(AnswerBody(Kind::Watch(Box::new(WatchBody::new(server, call, plan, fault)))));
            headers(&mut response, record, "application/json");
            Ok(response)
        }
        (reply, effect) => {
            let answer = match reply {
                Ok(Reply::Json(code, body)) => {
                    Answer { code, content_type: "application/json".into(), retry_after: None, body }
                }
                Err(Refused { refusal, .. }) => {
                    let seconds = refusal.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                    Answer { retry_after: (seconds > 0).then_some(seconds), ..Answer::of(&refusal) }
                }
                Ok(Reply::NoSuchPath | Reply::Watch(_)) => Answer::text(404, "404 page not found\n"),
            };
            let mut response = respond(&call, answer);
            if matches!(effect, Effect::HalfBody)
                && let Kind::Whole(body) = &mut response.body_mut().0
            {
                let half = body.take().map(|body| body.slice(..body.len() / 2));
                response.body_mut().0 = Kind::Half(half);
            }
            Ok(response)
        }
    }
}

async fn hold(time: std::time::Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer")
}

fn respond(call: &Call, answer: Answer) -> Response<AnswerBody> {
    call.server.answered(call.record, answer.code);
    let mut response = Response::new(AnswerBody(Kind::Whole(Some(answer.body))));
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    headers(&mut response, call.record, &answer.content_type);
    if let Some(seconds) = answer.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn headers(response: &mut Response<AnswerBody>, record: u64, content_type: &str) {
    let headers = response.headers_mut();
    headers.insert("audit-id", record.into());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
}

/// The body of an answer.
pub struct AnswerBody(Kind);

enum Kind {
    Whole(Option<Bytes>),
    /// Breaks off after this.
    Half(Option<Bytes>),
    Watch(Box<WatchBody>),
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.get_mut().0 {
            Kind::Whole(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Kind::Half(body) => Poll::Ready(Some(match body.take() {
                Some(body) => Ok(Frame::data(body)),
                None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "end of file before message length reached")),
            })),
            Kind::Watch(watch) => Pin::new(&mut **watch).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Kind::Whole(None))
    }
}
