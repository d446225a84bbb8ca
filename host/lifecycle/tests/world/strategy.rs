//! Random orders of events, weighted so that they go everywhere that matters.

use moorline_lifecycle::FailureKind;
use proptest::prelude::*;

use super::policies::{Acknowledgment, Adoption, Cni, Drift, Policies, Retry, Taints};
use super::steps::{Beginning, Change, Happening, Of, Order, Step};
use super::{Fault, Kind, Says};

pub const KINDS: [FailureKind; 11] = [
    FailureKind::Conflict,
    FailureKind::NotFound,
    FailureKind::Unauthorized,
    FailureKind::Forbidden,
    FailureKind::Throttled,
    FailureKind::Unavailable,
    FailureKind::Timeout,
    FailureKind::Closed,
    FailureKind::Expired,
    FailureKind::Invalid,
    FailureKind::Other,
];

pub fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        2 => Just(Fault::None),
        3 => prop::sample::select(&KINDS[..]).prop_map(Fault::Fails),
        1 => (0..400_u16).prop_map(Fault::Throttled),
        2 => Just(Fault::Denied),
        2 => any::<bool>().prop_map(Fault::Lost),
        1 => Just(Fault::Ignored),
    ]
}

pub const SITES: [Option<&str>; 4] = [Some("berlin"), Some("berlin"), Some("paris"), None];
pub const POOLS: [Option<&str>; 4] = [None, None, Some("edge"), Some("typo")];

pub fn a_change() -> impl Strategy<Value = Change> {
    let site = || prop::sample::select(&SITES[..]);
    let pool = || prop::sample::select(&POOLS[..]);
    let name = || prop::sample::select(&["berlin", "paris"][..]);
    prop_oneof![
        2 => site().prop_map(Change::Site),
        3 => pool().prop_map(Change::Pool),
        1 => (site(), pool()).prop_map(|(site, pool)| Change::CreateNode(site, pool)),
        1 => Just(Change::DeleteNode),
        3 => prop::bool::weighted(0.7).prop_map(Change::GatewayTaint),
        1 => any::<bool>().prop_map(Change::ForeignTaint),
        1 => (0..3_u8).prop_map(Change::PodCidr),
        1 => Just(Change::Heartbeat),
        3 => (name(), prop::sample::select(&[None, None, Some(true), Some(false)][..]))
            .prop_map(|(name, manage)| Change::PutSite(name, manage)),
        1 => name().prop_map(Change::DeleteSite),
        1 => Just(Change::PutPool("edge")),
        1 => Just(Change::DeletePool("edge")),
        1 => Just(Change::PutRoutes("10.9.0.0/16")),
        1 => Just(Change::DeleteRoutes),
        1 => Just(Change::ReplacePod),
    ]
}

pub fn policies() -> impl Strategy<Value = Policies> {
    use prop::sample::select;
    let adoption = select(&[Adoption::Default, Adoption::Nonsense, Adoption::NoBinding, Adoption::Held][..]);
    let drift = select(
        &[
            Drift::Default,
            Drift::AlwaysDrifted,
            Drift::AlwaysSame,
            Drift::MayTolerate,
            Drift::NoBinding,
            Drift::Held,
            Drift::HeldMayTolerate,
        ][..],
    );
    let retry = select(
        &[Retry::Default, Retry::AtOnce, Retry::AtOnce, Retry::Hour, Retry::GiveUp, Retry::NoBinding, Retry::Held][..],
    );
    let taints = select(&[Taints::Default, Taints::Everything, Taints::Nothing, Taints::NoBinding, Taints::Held][..]);
    let cni = select(&[Cni::Default, Cni::Evil, Cni::Broken, Cni::Wait, Cni::Unmanaged, Cni::NoBinding, Cni::Held][..]);
    let acknowledgment = select(
        &[
            Acknowledgment::Default,
            Acknowledgment::Rack,
            Acknowledgment::HostsKey,
            Acknowledgment::NoBinding,
            Acknowledgment::Held,
        ][..],
    );
    // One or two hooks answer in their own way; more would only stand still.
    prop_oneof![
        3 => Just(Policies::default()),
        2 => retry.prop_map(|retry| Policies { retry, ..Policies::default() }),
        1 => adoption.prop_map(|adoption| Policies { adoption, ..Policies::default() }),
        2 => (drift, acknowledgment)
            .prop_map(|(drift, acknowledgment)| Policies { drift, acknowledgment, ..Policies::default() }),
        2 => (taints, cni).prop_map(|(taints, cni)| Policies { taints, cni, ..Policies::default() }),
    ]
}

pub fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => fault().prop_map(Happening::Answered),
        2 => a_change().prop_map(Happening::Before),
        4 => a_change().prop_map(Happening::During),
        1 => Just(Happening::Terminate),
        2 => (any::<bool>(), prop::bool::weighted(0.3))
            .prop_map(|(reached, new_pod)| Happening::Kill { reached, new_pod }),
    ]
}

pub fn a_step() -> impl Strategy<Value = Step> {
    let of = prop::sample::select(
        &[
            Of::ReadNode,
            Of::Pod,
            Of::Pod,
            Of::Taints,
            Of::Taints,
            Of::Routes,
            Of::Ledger,
            Of::Plane,
            Of::TearDown,
            Of::Join,
            Of::Cni,
            Of::Ask,
        ][..],
    );
    let kind = prop::sample::select(&[Kind::Node, Kind::Node, Kind::Site, Kind::Pool][..]);
    let says = prop_oneof![
        4 => Just(Says::Next),
        1 => Just(Says::Bookmark),
        1 => Just(Says::Closed),
        1 => prop::sample::select(&[FailureKind::Expired, FailureKind::Unavailable, FailureKind::Other][..])
            .prop_map(Says::Fails),
    ];
    prop_oneof![
        30 => (1..16_u8).prop_map(Step::Well),
        20 => (of, happening()).prop_map(|(of, happening)| Step::Upon(of, happening)),
        5 => (any::<u8>(), fault()).prop_map(|(index, fault)| Step::Answer(index, fault)),
        2 => (any::<u8>(), fault()).prop_map(|(index, fault)| Step::Serve(index, fault)),
        4 => (kind, says).prop_map(|(kind, says)| Step::Stream(kind, says)),
        5 => a_change().prop_map(Step::World),
        2 => policies().prop_map(Step::Policies),
        5 => prop_oneof![3 => Just(0_u32), 1 => 0..20_000_u32].prop_map(Step::Tick),
        2 => prop_oneof![0..100_u32, 0..700_000_u32].prop_map(Step::Pass),
        1 => any::<u8>().prop_map(Step::LateAnswer),
        1 => Just(Step::Terminate),
        1 => any::<bool>().prop_map(|taken| Step::LookAtCni { taken }),
        2 => (any::<bool>(), prop::bool::weighted(0.3), prop::bool::weighted(0.1))
            .prop_map(|(reached, new_pod, lose_ledger)| Step::Kill { reached, new_pod, lose_ledger }),
    ]
}

/// Orders that begin in one of these ways: with a Node on which no process has settled before, or one has, as a worker or
/// as a gateway.
pub fn order(earlier: &'static [Option<Option<&'static str>>]) -> impl Strategy<Value = Order> {
    let site = prop::sample::select(&SITES[..]);
    let pool = prop::sample::select(&POOLS[..]);
    let earlier = prop::sample::select(earlier);
    let beginning = (site, pool, prop::bool::weighted(0.8), any::<bool>(), any::<bool>(), policies(), earlier)
        .prop_map(|(site, pool, objects, advertises, foreign_taint, policies, earlier)| Beginning {
            site,
            pool,
            objects,
            advertises,
            foreign_taint,
            policies,
            earlier,
        });
    (beginning, prop::collection::vec(a_step(), 1..34)).prop_map(|(beginning, steps)| Order { beginning, steps })
}
