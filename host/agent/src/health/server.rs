//! The HTTP server in front of the pages: few connections, short lives, so that slow or hostile clients can't keep a
//! probe from its answer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Health, Pages, respond};

/// So many connections live at a time; a new one ends the oldest, since a probe is always new.
const CONNECTIONS: usize = 32;
/// From the connection, or the last answer, to the end of a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The life of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a connection could not be accepted, as when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The longest head of a request.
const HEAD_BYTES: usize = 16 << 10;

/// A server that has its port.
#[derive(Debug)]
pub struct HealthServer {
    listener: TcpListener,
    pages: Pages,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Someone else has the port: another agent on the same Node, mostly.
    #[error(
        "the health address {address} is taken, so that another agent seems to run on this Node. This one waits, makes \
         no request until the port is free, and probes are answered by whoever has it. If something else has the port, \
         choose another one by `health.address`"
    )]
    Taken {
        /// The address.
        address: SocketAddr,
    },
    /// The operating system refused for another reason.
    #[error("the health address {address} can't be served. Choose another one by `health.address`")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
}

impl HealthServer {
    /// Takes the port.
    pub async fn bind(address: SocketAddr, pages: Pages) -> Result<Self, BindError> {
        match TcpListener::bind(address).await {
            Ok(listener) => Ok(Self { listener, pages }),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(BindError::Taken { address }),
            Err(source) => Err(BindError::Refused { address, source }),
        }
    }

    /// The address with the port that was taken, for one that was bound with port 0.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until it is stopped. Then the port is free and no connection is left.
    pub async fn serve(self, health: watch::Receiver<Health>, registry: Arc<Registry>, stop: CancellationToken) {
        let mut connections = Connections::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let connection = connection(stream, self.pages, health.clone(), Arc::clone(&registry));
                        connections.add(tokio::spawn(connection).abort_handle());
                    }
                    // A client that went away before it was accepted is no trouble; where there is more, it lasts.
                    Err(error) => {
                        tracing::debug!(%error, "a connection to the health server could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }
}

/// The living connections, the oldest first. They end with it.
#[derive(Default)]
struct Connections(VecDeque<AbortHandle>);

impl Connections {
    fn add(&mut self, connection: AbortHandle) {
        self.0.retain(|connection| !connection.is_finished());
        if self.0.len() >= CONNECTIONS
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
        self.0.push_back(connection);
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

async fn connection(stream: TcpStream, pages: Pages, health: watch::Receiver<Health>, registry: Arc<Registry>) {
    let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
        let response =
            respond(pages, request.method(), request.uri().path(), &health.borrow(), &registry, Instant::now());
        async { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // Clients break off as they like, and are cut off when they take too long.
    if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_TIMEOUT, served).await {
        tracing::trace!(%error, "a connection to the health server broke off");
    }
}
