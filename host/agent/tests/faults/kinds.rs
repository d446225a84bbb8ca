//! What the tests of single kinds of faults share: an agent that lives for so long, and what is seen of it.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use moorline::driver::Agent;
use moorline::health::{Health, Pages, respond};
use moorline_lifecycle::Exit;
use moorline_sim::server::{AuditRecord, Server, Verb};
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::stage::{self, Machine};

/// A server, a machine, and an agent that lives while a test waits.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) machine: Machine,
    pub(crate) health: watch::Receiver<Health>,
    pub(crate) reload: Arc<Notify>,
    life: std::pin::Pin<Box<dyn Future<Output = Exit>>>,
}

impl Running {
    pub(crate) fn start(server: Server, machine: Machine) -> Self {
        Self::start_as(server, machine, |agent| agent)
    }

    pub(crate) fn start_as(server: Server, machine: Machine, change: impl FnOnce(Agent) -> Agent) -> Self {
        let (agent, health) = machine.agent(&server);
        let reload = agent.reload.clone();
        Self { server, machine, health, reload, life: Box::pin(change(agent).run()) }
    }

    pub(crate) async fn live(&mut self, seconds: u64) {
        self.live_for(Duration::from_secs(seconds)).await;
    }

    pub(crate) async fn live_for(&mut self, time: Duration) {
        stage::live(&mut self.life, time).await;
    }

    /// Waits for its end.
    pub(crate) async fn end(&mut self) -> Exit {
        tokio::time::timeout(Duration::from_secs(3600), &mut self.life).await.unwrap()
    }

    /// Kills it, and starts another one an hour later.
    pub(crate) async fn restart(self) -> Self {
        let Self { server, machine, life, .. } = self;
        drop(life);
        // What was under way on other threads comes to its end before time goes on.
        tokio::time::sleep(Duration::from_secs(3600)).await;
        Self::start(server, machine)
    }

    /// What a probe of this page gets: whether it is well, and the text.
    pub(crate) async fn probe(&self, page: &str) -> (bool, String) {
        let health = self.health.borrow().clone();
        let answer = respond(Pages::All, &http::Method::GET, page, &health, &Registry::default(), Instant::now());
        let well = answer.status().is_success();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (well, String::from_utf8(body.to_vec()).unwrap())
    }

    /// What the agent's own server gives to one who scrapes it.
    pub(crate) async fn metrics(&self) -> String {
        let told = self.machine.told.lines();
        let address = told.iter().find_map(|line| line.strip_prefix("Boot(HealthUp(")?.strip_suffix("))")).unwrap();
        let address: std::net::SocketAddr = address.parse().unwrap();
        let ask = move || {
            let mut server = std::net::TcpStream::connect(address).unwrap();
            server.write_all(b"GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            server.read_to_string(&mut answer).unwrap();
            answer
        };
        tokio::task::spawn_blocking(ask).await.unwrap()
    }

    #[track_caller]
    pub(crate) fn assert_settled(&self) {
        let page = self.health.borrow().status.clone();
        assert_eq!(page["state"], "settled", "{page:#}");
    }

    /// The requests of this kind, each with the time since the first one of all.
    pub(crate) fn requests(&self, verb: Verb, resource: &str) -> Vec<Duration> {
        let audit = self.server.audit();
        let Some(first) = audit.first().map(|record| record.received) else { return Vec::new() };
        let is_meant = |record: &&std::sync::Arc<AuditRecord>| {
            record.request.verb == Some(verb) && record.request.resource == resource
        };
        let times = audit.iter().filter(is_meant).map(|record| record.received.duration_since(first));
        times.map(|time| Duration::try_from(time).unwrap()).collect()
    }
}

/// The shortest time between two.
pub(crate) fn shortest_pause(times: &[Duration]) -> Duration {
    times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap()
}
