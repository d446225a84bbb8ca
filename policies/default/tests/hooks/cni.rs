//! The conflist of a Site.

use moorline_policy_test::{CniSubjectBuilder, Tested, cni_subject, hooks::Cni, hooks::CniVerdict as Verdict, json};

use crate::policy;

const DUAL_STACK: &str = r#"{
  "cniVersion": "1.0.0",
  "name": "unbounded-net",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cbr0",
      "isGateway": true,
      "isDefaultGateway": true,
      "forceAddress": true,
      "ipMasq": false,
      "hairpinMode": true,
      "mtu": 1420,
      "ipam": {
        "type": "host-local",
        "ranges": [
          [
            {
              "subnet": "10.244.1.0/24"
            }
          ],
          [
            {
              "subnet": "fd00:244:0:1::/64"
            }
          ]
        ]
      }
    },
    {
      "type": "portmap",
      "capabilities": {
        "portMappings": true
      }
    }
  ]
}"#;

fn managed(policy: &Tested, subject: CniSubjectBuilder) -> (String, String) {
    match policy.ask::<Cni>(subject) {
        Verdict::Managed(managed) => (managed.conflist, managed.reason),
        other => panic!("not managed: {other:?}"),
    }
}

fn refused(subject: CniSubjectBuilder) -> String {
    policy().outcome::<Cni>(subject).result.unwrap_err().to_string()
}

#[test]
fn a_dual_stack_node_gets_one_range_set_for_each_podcidr_and_the_sites_mtu() {
    let subject = cni_subject()
        .node(|node| node.pod_cidrs(&["10.244.1.0/24", "fd00:244:0:1::/64"]))
        .site_spec(&json!({"tunnelMTU": 1420}));
    let (conflist, reason) = managed(&policy(), subject);
    assert_eq!(conflist, DUAL_STACK);
    assert_eq!(reason, "Site \"site-a\" doesn't say otherwise: bridge cbr0 with 10.244.1.0/24, fd00:244:0:1::/64");
}

#[test]
fn the_same_question_gives_the_same_bytes() {
    let ask = || managed(&policy(), cni_subject());
    assert_eq!(ask(), ask());
}

#[test]
fn without_an_mtu_in_site_or_settings_none_is_written() {
    assert!(!managed(&policy(), cni_subject()).0.contains("mtu"));
}

#[test]
fn every_part_of_the_configuration_can_be_set() {
    let settings = json!({"cni": {
        "cni-version": "0.4.0", "network": "site-net", "bridge": "br-pods", "mtu": 1280, "ip-masq": true,
        "hairpin-mode": false, "default-gateway": false, "force-address": false, "host-ports": false,
    }});
    let subject = cni_subject().site_spec(&json!({"tunnelMTU": 1420}));
    let (conflist, _) = managed(&policy().with_settings(settings), subject);
    let conflist: serde_json::Value = serde_json::from_str(&conflist).unwrap();
    assert_eq!(
        conflist,
        json!({"cniVersion": "0.4.0", "name": "site-net", "plugins": [{
            "type": "bridge", "bridge": "br-pods", "isGateway": true, "isDefaultGateway": false, "forceAddress": false,
            "ipMasq": true, "hairpinMode": false, "mtu": 1280,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]]},
        }]})
    );
}

#[test]
fn what_manage_cni_plugin_says_is_obeyed() {
    let says = |manage: bool| cni_subject().site_spec(&json!({"manageCniPlugin": manage}));
    let Verdict::Unmanaged(reason) = policy().ask::<Cni>(says(false)) else {
        panic!("managed against the Site's word")
    };
    assert_eq!(reason, "Site \"site-a\" says manageCniPlugin: false");
    assert!(managed(&policy(), says(true)).1.contains("says manageCniPlugin: true"));
}

#[test]
fn an_unmanaged_site_is_unmanaged_before_there_are_podcidrs() {
    let subject = cni_subject().site_spec(&json!({"manageCniPlugin": false})).node(|node| node.pod_cidrs(&[]));
    assert!(matches!(policy().ask::<Cni>(subject), Verdict::Unmanaged(_)));
}

#[test]
fn a_node_without_podcidrs_waits() {
    let Verdict::Wait(reason) = policy().ask::<Cni>(cni_subject().node(|node| node.pod_cidrs(&[]))) else {
        panic!("no wait")
    };
    assert_eq!(reason, "Node node-1 has no podCIDRs yet");
}

#[test]
fn what_is_no_podcidr_is_invalid_input_and_named() {
    for cidr in ["", "10.244.1.0", "10.244.1.0/33", "10.244.1.0/24 ", "fd00::/129", "\"/24", "10.244.1.0/-1", "ü/8"] {
        let error = refused(cni_subject().node(|node| node.pod_cidrs(&["10.1.0.0/24", cidr])));
        assert!(error.contains(&format!("podCIDR \"{cidr}\" is not an IP network")), "{error}");
    }
}

#[test]
fn a_podcidr_with_host_bits_is_written_as_its_network() {
    let (conflist, _) = managed(&policy(), cni_subject().node(|node| node.pod_cidrs(&["10.244.1.7/24"])));
    assert!(conflist.contains("\"10.244.1.0/24\""), "{conflist}");
}

#[test]
fn a_site_whose_tunnel_mtu_is_no_mtu_is_invalid_input() {
    for mtu in [json!(0), json!(575), json!(9001), json!(70_000), json!(-1), json!("1420"), json!(1420.5)] {
        let error = refused(cni_subject().site_spec(&json!({"tunnelMTU": mtu})));
        assert!(error.contains("spec of Site \"site-a\""), "{error}");
    }
    for mtu in [json!(null), json!(576), json!(9000)] {
        managed(&policy(), cni_subject().site_spec(&json!({"tunnelMTU": mtu})));
    }
}
