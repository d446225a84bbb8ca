//! A whole cluster restarts at once: many real agents against one embedded API server, in virtual time. Everyone settles,
//! nobody asks for more than one start needs, and the curve of the request rate is printed.
//!
//! `MOORLINE_FLEET=10000 cargo test --workspace --test fleet -- --nocapture` runs as many agents as it says (200 otherwise).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::{Request, Response};
use http_body_util::{Either, Full};
use kube::client::Body;
use moorline::config::{self, Config, Flag, Sources};
use moorline::driver::Agent;
use moorline::health::Health;
use moorline::machine::files::Disk;
use moorline::machine::network::NetworkAccess;
use moorline_policy::{Engine, EngineConfig, Loader, Policy};
use moorline_sim::server::{AuditRecord, Identity, ObjectName, Options, Server};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service as _, ServiceExt, service_fn};

/// By then everyone has settled; a Site watch is renewed after half an hour at the earliest.
const A_WHILE: Duration = Duration::from_secs(1800);
const SECOND: Duration = Duration::from_secs(1);
/// Between agent and server.
const LATENCY: Duration = Duration::from_millis(2);
/// Long enough that a start isn't splayed for following another.
const LATER: Duration = Duration::from_secs(7200);

fn fleet_size() -> usize {
    std::env::var("MOORLINE_FLEET").map_or(200, |size| size.parse().unwrap())
}

/// How many requests a server takes in a second; what is more is refused with 429 and Retry-After.
struct Capacity {
    per_second: usize,
    taken: Mutex<(tokio::time::Instant, usize)>,
    refused: AtomicUsize,
}

impl Capacity {
    fn new(per_second: usize) -> Arc<Self> {
        let taken = Mutex::new((tokio::time::Instant::now(), 0));
        Arc::new(Self { per_second, taken, refused: AtomicUsize::new(0) })
    }

    fn takes(&self) -> bool {
        let mut taken = self.taken.lock().unwrap();
        if taken.0.elapsed() >= SECOND {
            *taken = (tokio::time::Instant::now(), 0);
        }
        taken.1 += 1;
        let takes = taken.1 <= self.per_second;
        self.refused.fetch_add(usize::from(!takes), Ordering::Relaxed);
        takes
    }
}

struct Fleet {
    server: Server,
    machines: tempfile::TempDir,
    loader: Loader,
    default_policy: Policy,
    size: usize,
}

impl Fleet {
    fn new(size: usize) -> Self {
        let server = Server::new(Options::default());
        server
            .apply(json!({
                "apiVersion": "unbounded-cloud.io/v1alpha3", "kind": "Site", "metadata": {"name": "east"},
                "spec": {
                    "manageCniPlugin": true, "nodeCidrs": ["192.168.0.0/16"],
                    "podCidrAssignments": [{"cidrBlocks": ["10.0.0.0/8"]}],
                },
            }))
            .unwrap();
        for number in 0..size {
            let (high, low) = (number / 256, number % 256);
            server
                .apply(json!({
                    "apiVersion": "v1", "kind": "Node",
                    "metadata": {"name": format!("n{number}"), "labels": {"unbounded-cloud.io/site": "east"}},
                    "spec": {"podCIDRs": [format!("10.{high}.{low}.0/24")]},
                }))
                .unwrap();
            server
                .apply(json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": format!("agent-{number}"), "namespace": "kube-system", "uid": format!("uid-{number}")},
                    "spec": {"nodeName": format!("n{number}"), "containers": [{"name": "c", "image": "i"}]},
                }))
                .unwrap();
        }
        let loader = Loader::new(&Engine::new(&EngineConfig::default()).unwrap());
        let default_policy = loader.load("default", moorline::DEFAULT_POLICY).unwrap();
        Self { server, machines: tempfile::tempdir().unwrap(), loader, default_policy, size }
    }

    fn config(&self, number: usize) -> Config {
        let machine = self.machines.path().join(number.to_string());
        let at = |path: &str| machine.join(path).display().to_string();
        let flags = [
            ("node.name", format!("n{number}")),
            ("pod.name", format!("agent-{number}")),
            ("pod.namespace", "kube-system".to_owned()),
            ("pod.uid", format!("uid-{number}")),
            ("pod.tokenFile", at("token")),
            ("machine.cniDirectory", at("cni")),
            ("machine.stateDirectory", at("state")),
            ("machine.cacheDirectory", at("cache")),
        ];
        let flag = |(key, value): (&str, String)| Flag { name: "test".into(), key: key.into(), value };
        let flags = flags.into_iter().map(flag).collect();
        let mut config = config::load(&Sources { flags, ..Sources::default() }).unwrap().config;
        // So many ports would be too many open files for one process.
        config.health.address = None;
        config
    }

    fn agent(&self, number: usize, capacity: Option<&Arc<Capacity>>) -> (Agent, watch::Receiver<Health>) {
        let (health, seen) = watch::channel(Health::default());
        let agent = Agent {
            config: self.config(number),
            client: self.client(capacity),
            loader: self.loader.clone(),
            default_policy: self.default_policy.clone().into(),
            data_plane: None,
            files: Arc::new(Disk),
            network: NetworkAccess::Untouched,
            journal: None,
            health,
            reload: Arc::default(),
            terminate: CancellationToken::new(),
            wall: self.server.now(),
            seed: number as u64,
        };
        (agent, seen)
    }

    /// A client that is a few milliseconds away from the server, which takes no more than its capacity.
    fn client(&self, capacity: Option<&Arc<Capacity>>) -> kube::Client {
        let identity = Identity::agent("system:serviceaccount:kube-system:moorline", "kube-system");
        let (connection, capacity) = (self.server.connect(identity), capacity.cloned());
        let service = service_fn(move |request: Request<Body>| {
            let (mut connection, capacity) = (connection.clone(), capacity.clone());
            async move {
                tokio::time::sleep(LATENCY).await;
                if capacity.is_some_and(|capacity| !capacity.takes()) {
                    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}"#;
                    let refused = Response::builder().status(429).header("Retry-After", "1");
                    return Ok(refused.body(Either::Left(Full::from(status))).unwrap());
                }
                let answer = ServiceExt::<Request<Body>>::ready(&mut connection).await?.call(request).await?;
                Ok::<_, BoxError>(answer.map(Either::Right))
            }
        });
        kube::Client::new(service, "default")
    }

    /// Everyone starts now, lives for a while, and is killed. Gives the requests that were made meanwhile.
    async fn lives(&self, capacity: Option<Arc<Capacity>>) -> Vec<Arc<AuditRecord>> {
        let before = self.server.audit().len();
        let agents: Vec<_> = (0..self.size).map(|number| self.agent(number, capacity.as_ref())).collect();
        let (agents, health): (Vec<_>, Vec<_>) = agents.into_iter().unzip();
        let mut lives: FuturesUnordered<_> = agents.into_iter().map(|agent| Box::pin(agent.run())).collect();
        if let Ok(Some(exit)) = tokio::time::timeout(A_WHILE, lives.next()).await {
            panic!("an agent ended: {exit:?}");
        }
        // Nobody has been in trouble on the way: the happy path has no Events.
        let made = self.server.audit().split_off(before);
        assert!(made.iter().all(|record| record.request.resource != "events"), "there were Events");
        let unsettled: Vec<_> = health.iter().filter(|health| !health.borrow().ready).collect();
        assert!(unsettled.is_empty(), "{} have not settled: {:?}", unsettled.len(), unsettled[0].borrow().missing);
        made
    }

    fn acknowledged(&self) -> usize {
        let is_acknowledged = |number: &usize| {
            let pod = ObjectName::new("pods", format!("agent-{number}")).namespace("kube-system");
            let pod = self.server.get(&pod).unwrap();
            pod["metadata"]["annotations"]["moorline.dev/acknowledgment"].is_string()
        };
        (0..self.size).filter(is_acknowledged).count()
    }
}

/// Prints the curve of the requests over virtual time, and how many there were of each kind.
fn curve(title: &str, fleet: &Fleet, made: &[Arc<AuditRecord>]) {
    let first = made[0].received;
    let times: Vec<_> =
        made.iter().map(|record| Duration::try_from(record.received.duration_since(first)).unwrap()).collect();
    let counted = |width: Duration| {
        let mut counts: BTreeMap<u128, usize> = BTreeMap::new();
        for time in &times {
            *counts.entry(time.as_millis() / width.as_millis()).or_default() += 1;
        }
        counts
    };
    let peak = counted(SECOND).into_values().max().unwrap();
    println!("\n{title}: {} agents, {} requests, peak {peak} in one second", fleet.size, made.len());
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for record in made {
        *kinds.entry(format!("{} {}", record.verb(), record.request.resource)).or_default() += 1;
    }
    for (kind, count) in &kinds {
        println!("  {kind:<16} {count:>7}  ({:.2} per agent)", *count as f64 / fleet.size as f64);
    }
    let last = times.iter().max().unwrap();
    let widths = [1, 10, 100, 1000, 5000, 10_000, 60_000].map(Duration::from_millis);
    let width = widths.into_iter().find(|width| last.as_millis() / width.as_millis() < 40).unwrap();
    let counts = counted(width);
    let most = counts.values().max().unwrap();
    for (bin, count) in &counts {
        let from = Duration::from_millis(u64::try_from(bin * width.as_millis()).unwrap());
        println!("  from {:>9.3} s: {count:>7} {}", from.as_secs_f64(), "#".repeat((count * 60).div_ceil(*most)));
    }
}

#[test]
fn a_fleet_that_restarts_at_once_settles_with_no_more_requests_than_its_starts_need() {
    let began = Instant::now();
    let size = fleet_size();
    // One machine does the work of them all: it takes no more at once than it can do before policies run out of time.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).max_blocking_threads(2).build().unwrap();
    runtime.block_on(async {
        let fleet = Fleet::new(size);
        println!("{size} Nodes are there after {:.1} s of real time", began.elapsed().as_secs_f64());
        let first = fleet.lives(None).await;
        curve("All start for the first time", &fleet, &first);
        assert_eq!(fleet.acknowledged(), size);
        println!("settled after {:.1} s of real time", began.elapsed().as_secs_f64());

        // Killed, as by a power cut, and all start again much later.
        tokio::time::sleep(LATER).await;
        let second = fleet.lives(None).await;
        curve("All restart at once", &fleet, &second);
        assert_eq!(fleet.acknowledged(), size);
        // GET and WATCH of the Node, WATCH of the Site, PATCH of the Pod; a first start reads its Pod, too.
        assert_eq!((first.len(), second.len()), (size * 5, size * 4));

        tokio::time::sleep(LATER).await;
        let capacity = Capacity::new((size / 20).max(1));
        let third = fleet.lives(Some(capacity.clone())).await;
        curve("All restart at once, and the server takes a twentieth of them in a second", &fleet, &third);
        let refused = capacity.refused.load(Ordering::Relaxed);
        println!("  refused with 429: {refused} ({:.2} per agent)", refused as f64 / size as f64);
        assert_eq!(fleet.acknowledged(), size);
        // Of those that were taken, only a GET of the Node may come again: each watch that was refused is validated anew.
        assert!(third.len() < size * 5, "{} requests", third.len());
        println!("done after {:.1} s of real time", began.elapsed().as_secs_f64());
    });
}
