//! A fresh call for each hook of the default policy: a small and a large Node, memory on demand and from a pool; and the
//! drift verdict by everyone who makes it.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use moorline_bench::{DEFAULT, Failed, SIZES, contestants, input, loader};
use moorline_policy::{
    Hook, Policy,
    hooks::{Acknowledgment, Adoption, Cni, Drift, Retry, Taints},
};

fn hook<H: Hook>(criterion: &mut Criterion, policies: &[(&str, Policy)]) -> Result<(), Failed> {
    let mut group = criterion.benchmark_group(H::NAME);
    for (size, labels) in SIZES {
        let input = input::<H>(labels)?;
        for (allocation, policy) in policies {
            policy.call::<H>(&input, "{}").result?;
            group.bench_with_input(BenchmarkId::new(*allocation, size), &input, |bencher, input| {
                bencher.iter(|| policy.call::<H>(input, "{}"));
            });
        }
    }
    group.finish();
    Ok(())
}

fn all(criterion: &mut Criterion) -> Result<(), Failed> {
    let policies = [("pooled", loader(true)?.load("it", DEFAULT)?), ("on demand", loader(false)?.load("it", DEFAULT)?)];
    hook::<Adoption>(criterion, &policies)?;
    hook::<Drift>(criterion, &policies)?;
    hook::<Retry>(criterion, &policies)?;
    hook::<Taints>(criterion, &policies)?;
    hook::<Cni>(criterion, &policies)?;
    hook::<Acknowledgment>(criterion, &policies)?;

    let mut contestants = contestants::all()?;
    contestants::agree(&mut contestants)?;
    let mut group = criterion.benchmark_group("the same drift verdict");
    for (size, labels) in SIZES {
        let seen = contestants::cases(labels)?.swap_remove(0);
        for contestant in &mut contestants {
            group.bench_with_input(BenchmarkId::new(contestant.name, size), &seen, |bencher, seen| {
                bencher.iter(|| contestant.decide(seen).ok());
            });
        }
    }
    group.finish();
    Ok(())
}

fn benches(criterion: &mut Criterion) {
    if let Err(error) = all(criterion) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

criterion_group!(hooks, benches);
criterion_main!(hooks);
