//! Makes a day of random faults from a seed: a scenario whose steps go wrong in every way that scenarios know, until a
//! last one has put everything right.

use std::fmt::Write as _;

use fastrand::Rng;
use serde_json::{Value, json};

/// Faults end after so many minutes of a day, and it has so many.
const FAULTS_END: u64 = 22 * 60;
const DAY: u64 = 24 * 60;

const NODE_UIDS: &str = "c2a7d2ef-3b28-4b90-9b3e-";

/// What the steps have made of the cluster so far, so that none of them is impossible.
struct Cluster {
    random: Rng,
    steps: Vec<Value>,
    node: bool,
    nodes: u64,
    site: bool,
    pool: bool,
    denied: bool,
    /// Whether ledgers are damaged on this day.
    tears: bool,
}

/// The day of this seed.
pub(crate) fn scenario(seed: u64) -> Value {
    let mut day = Cluster {
        random: Rng::with_seed(seed),
        steps: Vec::new(),
        node: true,
        nodes: 0,
        site: true,
        pool: true,
        denied: false,
        tears: false,
    };
    let gateway = day.random.bool();
    day.tears = day.random.u8(..3) == 0;
    let mut minute = 0;
    loop {
        minute += 1 + day.random.u64(..12);
        if minute >= FAULTS_END {
            break;
        }
        let first = day.steps.len();
        let step = day.step();
        day.steps.push(step);
        day.steps[first]["at"] = json!(time(minute, day.random.u64(..60)));
    }
    day.put_right(gateway);
    let pool = gateway.then_some("pool-a");
    let settled = pool.map_or_else(|| json!({"site": "site-a"}), |pool| json!({"site": "site-a", "pool": pool}));
    let mut expect = vec![
        json!({"settled": settled}),
        json!({"acknowledgment": {"says": {"site": "site-a", "pool": pool}}}),
        json!({"startupWatchEnds": true}),
        json!({"readyz": {"ready": true}}),
        json!({"file": {"path": "etc/cni/net.d/10-unbounded.conflist", "exists": true}}),
        json!({"object": {"kind": "Node", "name": "node-1", "exists": true}}),
    ];
    // What only a ledger knew that was damaged is known to nobody: the plan of a data plane that keeps no marks, and whether
    // routes were written for it.
    if gateway || !day.tears {
        expect.push(json!({"file": {"path": "run/gateway", "exists": gateway}}));
        let routes: &[&str] = if gateway { &["10.244.1.0/24", "192.168.40.0/24"] } else { &[] };
        expect.push(json!({"routes": routes}));
    }
    if !gateway {
        expect.push(json!({"taints": {"absent": ["net.unbounded-cloud.io/gateway-node"]}}));
    }
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/scenarios");
    let files = ["site-a", "pool-a", "gateway", "gateway-pool-node", "pod"];
    json!({
        "name": format!("random-day-{seed}"),
        "description": "A day of random faults, after which everything is put right.",
        "seed": seed,
        "end": format!("{DAY}m"),
        "files": files.map(|file| format!("{examples}/objects/{file}.yaml")),
        "agent": {
            "node": "node-1",
            "pod": {"namespace": "kube-system", "name": "moorline-x7k2p"},
            "config": {"dataPlane": {
                "kind": "command",
                "command": [format!("{examples}/data-planes/routes.sh")],
                "environment": {"MACHINE": "${machine}"},
            }},
        },
        "steps": day.steps,
        "expect": expect,
    })
}

fn time(minute: u64, second: u64) -> String {
    format!("{minute}m{second}s")
}

impl Cluster {
    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.usize(..of.len())]
    }

    fn step(&mut self) -> Value {
        match self.random.u64(..22) {
            0..=5 => self.fault(),
            6 | 7 => self.label(),
            8 if self.node => {
                let key = self.pick(&["net.unbounded-cloud.io/gateway-node", "example.com/other"]);
                json!({"taint": {"remove": [key], "add": [format!("{key}=true:NoSchedule")]}})
            }
            9 => self.site(),
            10 => self.pool(),
            11 => self.node(),
            12 => self.admission(),
            13 => json!({"closing": {"resource": self.pick(&["nodes", "sites", "gatewaypools"])}}),
            14 => json!({"compact": {}}),
            15 | 16 => json!({"agent": "kill"}),
            17 => json!({"agent": "terminate"}),
            18 | 19 => json!({"agent": "replacePod"}),
            20 => {
                // Whatever is there is replaced by what can then be removed.
                let path = "etc/cni/net.d/10-unbounded.conflist";
                self.steps.push(json!({"file": {"path": path, "content": ""}}));
                json!({"file": {"path": path}})
            }
            21 if self.tears => json!({"file": {"path": "var/lib/moorline/ledger.json", "content": "{\"torn"}}),
            _ => json!({"compact": {}}),
        }
    }

    /// A fault for some of the next requests.
    fn fault(&mut self) -> Value {
        let on = match self.random.u64(..8) {
            0 => json!({"verb": "get", "resource": "nodes"}),
            1 => json!({"verb": "watch", "resource": "nodes"}),
            2 => json!({"verb": "patch", "resource": "nodes"}),
            3 => json!({"verb": "patch", "resource": "pods"}),
            4 => json!({"verb": "get", "resource": "pods"}),
            5 => json!({"verb": "watch", "resource": self.pick(&["sites", "gatewaypools"])}),
            6 => json!({"resource": "gatewaypoolnodes"}),
            _ => json!({}),
        };
        let watches = on["verb"] == "watch";
        let times = 1 + self.random.u64(..12);
        let mut fault = json!({"on": on, "times": times});
        let (name, what) = match self.random.u64(..if watches { 8 } else { 6 }) {
            0 => {
                let answers = [
                    json!({"code": 500, "reason": "InternalError", "message": "etcdserver: leader changed"}),
                    json!({"code": 503, "body": "upstream connect error"}),
                    json!({"code": 429, "reason": "TooManyRequests", "message": "too many", "retryAfter": 7}),
                    json!({"code": 409, "reason": "Conflict", "message": "the object has been modified"}),
                    json!({"code": 401, "reason": "Unauthorized", "message": "Unauthorized"}),
                    json!({"code": 403, "reason": "Forbidden", "message": "no RBAC policy matched"}),
                    json!({"code": 404, "body": "404 page not found"}),
                    json!({"code": 504, "reason": "Timeout", "message": "the server was unable to answer in time"}),
                ];
                let answer = self.random.usize(..answers.len());
                ("status", answers[answer].clone())
            }
            1 => ("delay", json!(format!("{}s", 1 + self.random.u64(..40)))),
            2 | 3 => ("lost", json!("request")),
            4 | 5 => ("lost", json!("answer")),
            6 => {
                let end = self.pick(&["closed", "silent"]);
                ("stream", json!({"is": end, "after": format!("{}s", self.random.u64(..90))}))
            }
            _ => ("errorEvent", json!({"code": 410, "reason": "Expired", "message": "too old resource version"})),
        };
        fault[name] = what;
        json!({"fault": fault})
    }

    fn label(&mut self) -> Value {
        if !self.node {
            return self.node();
        }
        let site = ["site-a", "site-b", ""][self.random.usize(..3)];
        let pool = ["pool-a", "pool-o", ""][self.random.usize(..3)];
        let value = |name: &str| if name.is_empty() { Value::Null } else { json!(name) };
        json!({"label": {"set": {
            "unbounded-cloud.io/site": value(site),
            "net.unbounded-cloud.io/site": value(site),
            "net.unbounded-cloud.io/gateway-pool": value(pool),
        }}})
    }

    fn site(&mut self) -> Value {
        self.site = !self.site;
        if self.site { site(1420 + self.random.u64(..4)) } else { delete("Site", "site-a") }
    }

    fn pool(&mut self) -> Value {
        self.pool = !self.pool;
        if self.pool { pool() } else { delete("GatewayPool", "pool-a") }
    }

    fn node(&mut self) -> Value {
        self.node = !self.node;
        if self.node {
            self.nodes += 1;
            node(self.nodes, self.random.bool())
        } else {
            delete("Node", "node-1")
        }
    }

    fn admission(&mut self) -> Value {
        self.denied = !self.denied;
        if self.denied {
            let resource = self.pick(&["nodes", "pods"]);
            json!({"admission": {"policy": "p", "denies": {"verb": "patch", "resource": resource}, "message": "no"}})
        } else {
            json!({"admission": {"policy": "p"}})
        }
    }

    /// The faults have ended, and a new Pod finds everything in order.
    fn put_right(&mut self, gateway: bool) {
        let mut last = vec![json!({"admission": {"policy": "p"}}), site(1420), pool()];
        if !self.node {
            last.push(node(self.nodes + 1, gateway));
        }
        let pool = if gateway { json!("pool-a") } else { Value::Null };
        last.push(json!({"label": {"set": {
            "unbounded-cloud.io/site": "site-a",
            "net.unbounded-cloud.io/site": "site-a",
            "net.unbounded-cloud.io/gateway-pool": pool,
        }}}));
        last.push(json!({"agent": "replacePod"}));
        let first = last.first_mut().unwrap();
        first["at"] = json!(time(FAULTS_END, 0));
        first["note"] = json!("the faults end, and everything is put right");
        if !self.denied {
            // There is nothing to lift.
            let at = last.remove(0);
            last[0]["at"] = at["at"].clone();
        }
        self.steps.append(&mut last);
    }
}

fn delete(kind: &str, name: &str) -> Value {
    json!({"delete": {"kind": kind, "name": name}})
}

fn site(mtu: u64) -> Value {
    json!({"apply": {
        "apiVersion": "unbounded-cloud.io/v1alpha3", "kind": "Site", "metadata": {"name": "site-a"},
        "spec": {
            "manageCniPlugin": true, "nodeCidrs": ["10.1.0.0/24"], "tunnelMTU": mtu,
            "podCidrAssignments": [{"cidrBlocks": ["10.244.0.0/16", "fd00:244::/48"]}],
        },
    }})
}

fn pool() -> Value {
    json!({"apply": {
        "apiVersion": "net.unbounded-cloud.io/v1alpha1", "kind": "GatewayPool", "metadata": {"name": "pool-a"},
        "spec": {"type": "External", "nodeSelector": {"net.unbounded-cloud.io/gateway-pool": "pool-a"}},
    }})
}

/// The `number`th Node of this name.
fn node(number: u64, gateway: bool) -> Value {
    let mut uid = NODE_UIDS.to_owned();
    let _ = write!(uid, "{number:012}");
    let mut labels = json!({"unbounded-cloud.io/site": "site-a"});
    if gateway {
        labels["net.unbounded-cloud.io/gateway-pool"] = json!("pool-a");
    }
    json!({"apply": {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "uid": uid, "labels": labels},
        "spec": {
            "podCIDRs": ["10.244.1.0/24"],
            "taints": [{"key": "net.unbounded-cloud.io/gateway-node", "value": "true", "effect": "NoSchedule"}],
        },
    }})
}
