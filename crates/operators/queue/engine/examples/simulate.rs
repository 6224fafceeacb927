//! Runs a plan in virtual time and prints the report: `cargo run --example simulate -- plan.yaml`.

#![expect(clippy::print_stdout, reason = "the report is the product")]

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("the path of a plan is missing")?;
    let report = quintet_queue_engine::simulate::simulate(&std::fs::read_to_string(path)?)?;
    println!("{}", report.text());
    Ok(())
}
