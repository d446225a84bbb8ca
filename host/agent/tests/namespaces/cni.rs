//! The default policy's configuration drives the real CNI plugins: two Pods get addresses inside the Node's podCIDRs,
//! reach each other, and are cleaned up. The configuration is the file that the agent itself writes for a Site.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use ipnet::IpNet;
use nix::sched::{CloneFlags, setns};
use serde_json::Value;

use crate::Test;
use crate::stage::{Machine, ip, picture};

pub(crate) const TESTS: &[Test] = &[
    ("cni::two_pods_reach_each_other_by_ipv4", || two_pods_reach_each_other(&["10.244.3.0/24"])),
    ("cni::two_pods_reach_each_other_by_ipv6", || two_pods_reach_each_other(&["fd00:244:3::/64"])),
    ("cni::two_pods_reach_each_other_by_both", || two_pods_reach_each_other(&["10.244.3.0/24", "fd00:244:3::/64"])),
];

/// Where Debian puts them.
pub(crate) const PLUGINS: &str = "/usr/lib/cni";
/// Where the plugins keep which address is whose; in this test's own file system.
const ADDRESSES: &str = "/var/lib/cni/networks/unbounded-net";
const PORT: u16 = 7000;

fn two_pods_reach_each_other(pod_cidrs: &[&str]) {
    let networks: Vec<IpNet> = pod_cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect();
    let conflist = written_by_the_agent(pod_cidrs);
    let before = picture();
    let pods = ["one", "two"].map(|name| {
        ip(&format!("netns add {name}"));
        (name, add(&conflist, name))
    });
    for (name, addresses) in &pods {
        assert_eq!(addresses.len(), networks.len(), "{name}: {addresses:?}");
        for network in &networks {
            let inside = addresses.iter().filter(|address| network.contains(*address)).count();
            assert_eq!(inside, 1, "{name}: {addresses:?} and {network}");
        }
    }
    let distinct: BTreeSet<_> = pods.iter().flat_map(|(_, addresses)| addresses).collect();
    assert_eq!(distinct.len(), 2 * networks.len());

    let [(one, of_one), (two, of_two)] = &pods;
    for (from, to, addresses) in [(one, two, of_two), (two, one, of_one)] {
        for address in addresses {
            assert_eq!(exchange(from, to, *address), *b"moored");
        }
    }

    for (name, _) in &pods {
        del(&conflist, name);
        // Once more, as a runtime does that isn't sure.
        del(&conflist, name);
        assert!(!ip(&format!("netns exec {name} ip -o link")).contains("eth0"), "{name}");
    }
    let kept: Vec<_> = std::fs::read_dir(ADDRESSES).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let kept: Vec<_> = kept.iter().filter_map(|name| name.to_str()?.parse::<IpAddr>().ok()).collect();
    assert!(kept.is_empty(), "{kept:?}");
    // The bridge is the Node's, not a Pod's.
    ip("link del cbr0");
    assert_eq!(picture(), before);
}

/// The configuration that a real agent with its real policy writes for a Node with these podCIDRs.
fn written_by_the_agent(pod_cidrs: &[&str]) -> Value {
    let machine = Machine::new(pod_cidrs);
    machine.settle(&[]);
    serde_json::from_slice(&std::fs::read(machine.path("cni/10-unbounded.conflist")).unwrap()).unwrap()
}

/// Calls one plugin as a container runtime does.
fn call(command: &str, pod: &str, list: &Value, plugin: &Value, previous: Option<&Value>) -> Option<Value> {
    let mut config = plugin.clone();
    config["cniVersion"] = list["cniVersion"].clone();
    config["name"] = list["name"].clone();
    if let Some(previous) = previous {
        config["prevResult"] = previous.clone();
    }
    let executable = Path::new(PLUGINS).join(plugin["type"].as_str().unwrap());
    let mut child = Command::new(&executable)
        .env_clear()
        .envs([
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", pod),
            ("CNI_NETNS", &format!("/run/netns/{pod}")),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", PLUGINS),
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command} of {} for {pod}: {said}", executable.display());
    serde_json::from_slice(&output.stdout).ok()
}

/// Adds a Pod to the network; its addresses.
fn add(list: &Value, pod: &str) -> Vec<IpAddr> {
    let plugins = list["plugins"].as_array().unwrap();
    let result = plugins.iter().fold(None, |previous, plugin| call("ADD", pod, list, plugin, previous.as_ref()));
    let result = result.unwrap();
    let address = |ip: &Value| ip["address"].as_str().unwrap().parse::<IpNet>().unwrap().addr();
    result["ips"].as_array().unwrap().iter().map(address).collect()
}

fn del(list: &Value, pod: &str) {
    for plugin in list["plugins"].as_array().unwrap().iter().rev() {
        call("DEL", pod, list, plugin, None);
    }
}

/// Does something in the network of a Pod, on a thread of its own.
fn within<T: Send + 'static>(pod: &str, work: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    let namespace = File::open(format!("/run/netns/{pod}")).unwrap();
    thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        work()
    })
}

/// A word goes by TCP from one Pod to the other and comes back by UDP.
fn exchange(from: &str, to: &str, address: IpAddr) -> [u8; 6] {
    let server = within(to, move || {
        let listener = TcpListener::bind(SocketAddr::new(address, PORT)).unwrap();
        (listener, UdpSocket::bind(SocketAddr::new(address, 0)).unwrap())
    });
    // A socket stays in the network that it was made in.
    let (listener, back) = server.join().unwrap();
    let client = within(from, move || {
        let udp = UdpSocket::bind(SocketAddr::new(if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() }, 0));
        let udp = udp.unwrap();
        let mut tcp = TcpStream::connect(SocketAddr::new(address, PORT)).unwrap();
        let port = udp.local_addr().unwrap().port();
        tcp.write_all(&port.to_be_bytes()).unwrap();
        tcp.write_all(b"moored").unwrap();
        let mut heard = [0; 6];
        udp.recv(&mut heard).unwrap();
        heard
    });
    let (mut tcp, peer) = listener.accept().unwrap();
    let (mut port, mut word) = ([0; 2], [0; 6]);
    tcp.read_exact(&mut port).unwrap();
    tcp.read_exact(&mut word).unwrap();
    back.send_to(&word, SocketAddr::new(peer.ip(), u16::from_be_bytes(port))).unwrap();
    client.join().unwrap()
}
