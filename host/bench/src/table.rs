//! Times that are compared within one run. Contestants take turns, so that whatever disturbs the machine disturbs all of
//! them; a ratio is taken within a turn, and the median over the turns is what is printed.

use std::{hint::black_box, time::Instant};

use moorline_bench::{
    ALWAYS_DRIFTED, DEFAULT, Failed, RUST_DRIFT, SIZES,
    contestants::{self, Contestant, Kind},
    loader,
};
use moorline_policy::hooks::Observation;

/// Calls of one contestant in a turn.
const CALLS: u32 = 100;
const TURNS: usize = 300;

pub fn table(quick: bool) -> Result<(), Failed> {
    let turns = if quick { TURNS / 10 } else { TURNS };
    let mut all = contestants::all()?;
    let cases = contestants::agree(&mut all)?;
    println!("All of them give the same verdicts and reasons in {cases} cases.");
    for (size, labels) in SIZES {
        println!("\nA drift verdict, {size} Node ({labels} labels on each side), arguments made anew for each call");
        compare(&mut all, &contestants::cases(labels)?[0], turns)?;
    }
    Ok(())
}

pub fn phases() -> Result<(), Failed> {
    let host = |name, kind, pooled, component: &[u8]| {
        Ok::<_, Failed>(contestants::host(name, kind, loader(pooled)?.load("it", component)?))
    };
    let empty = Observation::default();
    let small = contestants::cases(SIZES[0].1)?.swap_remove(0);
    let large = contestants::cases(SIZES[1].1)?.swap_remove(0);
    for (what, seen) in [("nothing", &empty), ("a small Node", &small), ("a large Node", &large)] {
        let mut all = vec![
            host("rust-drift, pooled", Kind::Ours, true, RUST_DRIFT)?,
            host("default policy, pooled", Kind::Host, true, DEFAULT)?,
            host("a guest that looks at nothing, pooled", Kind::Host, true, ALWAYS_DRIFTED)?,
            host("rust-drift, on demand", Kind::Host, false, RUST_DRIFT)?,
            host("default policy, on demand", Kind::Host, false, DEFAULT)?,
            host("a guest that looks at nothing, on demand", Kind::Host, false, ALWAYS_DRIFTED)?,
        ];
        println!("\nA drift verdict about {what}");
        compare(&mut all, seen, TURNS)?;
    }
    Ok(())
}

/// Lets them take turns, and prints what each takes and how many times as long as the first that is.
fn compare(all: &mut [Contestant], seen: &Observation, turns: usize) -> Result<(), Failed> {
    let mut times = vec![Vec::new(); all.len()];
    for turn in 0..=turns {
        for (contestant, times) in all.iter_mut().zip(&mut times) {
            let started = Instant::now();
            for _ in 0..CALLS {
                black_box(contestant.decide(black_box(seen))?);
            }
            // The first turn warms up.
            if turn > 0 {
                times.push(started.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS));
            }
        }
    }
    let ours = times[0].clone();
    println!("{:<42} {:>9} {:>9}", "", "us", "ratio");
    for (contestant, times) in all.iter().zip(times) {
        let ratio = median(times.iter().zip(&ours).map(|(time, ours)| time / ours).collect());
        let mark = match contestant.kind {
            Kind::Interpreter if ratio < 2.0 => "  less than twice ours",
            _ => "",
        };
        println!("{:<42} {:>9.2} {ratio:>9.2}{mark}", contestant.name, median(times));
    }
    Ok(())
}

pub fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
