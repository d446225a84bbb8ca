//! The way between the agent and the API server: it takes a little time, so that what follows from what shows in the
//! times of a run. It loses and changes nothing; faults are the server's.

use std::time::Duration;

use http::Request;
use kube::client::Body;
use tower::{Service, ServiceExt, service_fn};

use crate::server::Connection;

/// A client whose requests and answers take half of `latency` each on their way.
pub(crate) fn client(connection: Connection, latency: Duration) -> kube::Client {
    let service = service_fn(move |request: Request<Body>| {
        let connection = connection.clone();
        async move {
            let mut connection = connection;
            tokio::time::sleep(latency / 2).await;
            let answer = ServiceExt::<Request<Body>>::ready(&mut connection).await?.call(request).await;
            tokio::time::sleep(latency / 2).await;
            answer
        }
    });
    kube::Client::new(service, "default")
}
