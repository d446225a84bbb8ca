//! An agent as a process of its own, against the embedded API server on a loopback socket, until it has settled.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use moorline_bench::Failed;
use moorline_sim::server::{Identity, Options, Server};
use serde_json::json;

use crate::table::median;

/// What the agent says once it watches nothing any more.
const SETTLED: &str = "State settled";

pub fn measure(binary: &Path, starts: usize) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server = runtime.block_on(async { cluster() })?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let url = format!("http://{}", listener.local_addr()?);
    runtime.spawn(async move { server.serve(listener, |_token| Identity::admin("agent")).await });

    let folder = tempfile::tempdir()?;
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    let mut last = None;
    for start in 0..starts.max(1) {
        let machine = folder.path().join(start.to_string());
        fs::create_dir(&machine)?;
        for times in [&mut cold, &mut warm] {
            // Another life of the same Pod: all that stays is the cache.
            for gone in ["cni", "state"] {
                let _ = fs::remove_dir_all(machine.join(gone));
            }
            let settled = Settled::wait(binary, &machine, &url)?;
            times.push(settled.after.as_secs_f64() * 1e3);
            last = Some(settled.memory()?);
        }
    }
    let ratio = median(cold.iter().zip(&warm).map(|(cold, warm)| cold / warm).collect());
    println!("From the start of the process until it has settled, {} pairs:", cold.len());
    println!("{:<24} {:>8.1} ms", "nothing compiled yet", median(cold));
    println!("{:<24} {:>8.1} ms, {ratio:.2} times as fast", "everything compiled", median(warm));
    if let Some(memory) = last {
        println!("\nMemory of the settled agent, every hook answered by a component from the cache:\n{memory}");
    }
    Ok(())
}

fn cluster() -> Result<Server, Failed> {
    let server = Server::new(Options::default());
    for object in [
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"unbounded-cloud.io/site": "east"}},
               "spec": {"podCIDRs": ["10.0.0.0/24"]}}),
        json!({"apiVersion": "unbounded-cloud.io/v1alpha3", "kind": "Site", "metadata": {"name": "east"},
               "spec": {"nodeCidrs": ["10.9.0.0/16"], "podCidrAssignments": [{"cidrBlocks": ["10.0.0.0/8"]}]}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent", "namespace": "kube-system", "uid": "u1"},
               "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    ] {
        server.apply(object)?;
    }
    Ok(server)
}

/// An agent that has settled; it is ended when this is dropped.
struct Settled {
    agent: Child,
    after: Duration,
}

impl Settled {
    fn wait(binary: &Path, machine: &Path, url: &str) -> Result<Self, Failed> {
        let kubeconfig = machine.join("kubeconfig");
        fs::write(
            &kubeconfig,
            json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                   "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                   "clusters": [{"name": "k", "cluster": {"server": url}}],
                   "users": [{"name": "u", "user": {"token": "t"}}]})
            .to_string(),
        )?;
        let at = |path: &str| machine.join(path).display().to_string();
        let mut command = Command::new(binary);
        command.arg("run").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        for (key, value) in [
            ("node.name", "n1".into()),
            ("pod.name", "agent".into()),
            ("pod.namespace", "kube-system".into()),
            ("pod.uid", "u1".into()),
            ("health.address", "127.0.0.1:0".into()),
            ("cluster.kubeconfig", kubeconfig.display().to_string()),
            ("pod.tokenFile", at("token")),
            ("pod.terminationLog", at("termination-log")),
            ("machine.cniDirectory", at("cni")),
            ("machine.stateDirectory", at("state")),
            ("machine.cacheDirectory", at("cache")),
        ] {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        let started = Instant::now();
        let mut agent = command.spawn()?;
        let mut log = BufReader::new(agent.stderr.take().ok_or("The agent has no log.")?);
        let mut said = String::new();
        loop {
            let mut line = String::new();
            if log.read_line(&mut line)? == 0 {
                return Err(format!("The agent ended with {} instead of settling:\n{said}", agent.wait()?).into());
            }
            said += &line;
            if line.contains(SETTLED) {
                break;
            }
        }
        let after = started.elapsed();
        // Whatever it still says; a full pipe would stop it.
        thread::spawn(move || log.lines().map_while(Result::ok).for_each(drop));
        Ok(Self { agent, after })
    }

    fn memory(&self) -> Result<String, Failed> {
        // What it gives back after settling, it has given back by then.
        thread::sleep(Duration::from_secs(2));
        let status = fs::read_to_string(format!("/proc/{}/status", self.agent.id()))?;
        let lines: Vec<_> = ["VmRSS:", "RssAnon:", "RssFile:", "VmHWM:", "Threads:"]
            .iter()
            .filter_map(|name| status.lines().find(|line| line.starts_with(name)))
            .collect();
        Ok(lines.join("\n"))
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}
