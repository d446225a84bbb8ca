//! The same server on a real socket, for agents that run as processes of their own. Plain HTTP/1.1: meant for loopback.

use std::{convert::Infallible, future::poll_fn, io, sync::Arc};

use http::{Request, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};
use tower::Service;

use super::{Identity, Server};

impl Server {
    /// Serves every connection that `listener` accepts, until this future is dropped: then all of them are cut, as when
    /// an API server is killed. `who` says which caller a bearer token belongs to (`None`: no token was sent).
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(
        &self,
        listener: TcpListener,
        who: impl Fn(Option<&str>) -> Identity + Send + Sync + 'static,
    ) -> io::Result<Infallible> {
        let who = Arc::new(who);
        let mut connections = JoinSet::new();
        loop {
            let socket = tokio::select! {
                accepted = listener.accept() => accepted?.0,
                Some(_) = connections.join_next() => continue,
            };
            let (server, who) = (self.clone(), who.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
                let identity = who(header.and_then(|value| value.strip_prefix("Bearer ")));
                let mut connection = server.connect(identity);
                async move {
                    poll_fn(|cx| Service::<Request<Incoming>>::poll_ready(&mut connection, cx)).await?;
                    connection.call(request).await
                }
            });
            // A fault that loses a connection surfaces here as an error, and cutting the connection is all it asks for.
            connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    }
}
