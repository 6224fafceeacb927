//! `quintet queue borrowing`.

use std::fmt::Write as _;

use clap::Args;
use quintet_queue_engine::Engine;
use quintet_queue_engine::borrowing::QuotaReport;
use serde::Serialize;

use super::ReportFormat;
use super::snapshot::{EngineArguments, Snapshot};
use crate::catalog::Catalog;
use crate::cluster::ClusterArguments;
use crate::output;

/// Show who uses more than their own quota, and whose unused quota it can be.
#[derive(Args)]
pub(super) struct Arguments {
    /// Only the ClusterQueues below this Cohort, which is the root of its tree.
    #[arg(long, value_name = "NAME")]
    cohort: Option<String>,
    /// Print a table, JSON or YAML.
    #[arg(short, long, default_value = "table")]
    output: ReportFormat,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Serialize)]
struct Report {
    quotas: Vec<QuotaReport>,
    loans: Vec<Loan>,
}

/// Quota of others in use.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Loan {
    cluster_queue: String,
    flavor: String,
    resource: String,
    amount: String,
    /// Who has unused quota left, which this is or could be part of.
    lenders: Vec<String>,
}

pub(super) async fn run(arguments: Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let Arguments { cohort, output, engine, cluster } = arguments;
    let cluster = cluster.connect().await?;
    let snapshot = Snapshot::read(&cluster.client, &engine, catalog).await?;
    let report = report(&snapshot.engine, cohort.as_deref());
    if report.quotas.is_empty() && output == ReportFormat::Table {
        let of_cohort = cohort.map(|name| format!(" in the Cohort {name}")).unwrap_or_default();
        output::complain(&format!("There are no ClusterQueues with quota{of_cohort}.\n"));
        return Ok(());
    }
    super::print(&report, || text(&report), output)
}

fn report(engine: &Engine, cohort: Option<&str>) -> Report {
    let mut quotas = engine.quotas();
    quotas.retain(|quota| cohort.is_none_or(|cohort| quota.cohort == cohort));
    let loans = quotas.iter().filter(|quota| quota.is_borrowing()).map(|quota| Loan {
        cluster_queue: quota.name.clone(),
        flavor: quota.flavor.clone(),
        resource: quota.resource.clone(),
        amount: quota.borrowed.clone(),
        lenders: engine.lenders(quota),
    });
    Report { loans: loans.collect(), quotas }
}

fn text(report: &Report) -> String {
    let row = |quota: &QuotaReport| {
        let name = if quota.is_cohort { format!("{} (Cohort)", quota.name) } else { quota.name.clone() };
        let used = if quota.is_cohort { String::new() } else { quota.used.clone() };
        let shown = [&quota.cohort, &name, &quota.flavor, &quota.resource, &quota.nominal, &used];
        let mut row: Vec<String> = shown.into_iter().cloned().collect();
        row.extend([quota.borrowed.clone(), quota.lendable.clone()]);
        row
    };
    let header = ["COHORT", "CLUSTERQUEUE", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "BORROWED", "LENDABLE"];
    let rows: Vec<Vec<String>> = report.quotas.iter().map(row).collect();
    let mut text = output::table(&header, &rows) + "\n";
    for loan in &report.loans {
        let Loan { cluster_queue, flavor, resource, amount, lenders } = loan;
        let lenders = match lenders.as_slice() {
            [] => "all that others do not use".to_owned(),
            some => format!("what {} did not use", some.join(", ")),
        };
        let _ = writeln!(text, "{cluster_queue} borrows {amount} {resource} of {flavor}, from {lenders}.");
    }
    if report.loans.is_empty() {
        text += "Nobody borrows.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use quintet_queue_engine::testing;
    use quintet_queue_engine::time::Time;
    use serde_json::json;

    use super::*;

    #[test]
    fn loans_name_those_who_have_quota_left() {
        let queue = |name: &str, cohort: &str| {
            json!({"kind": "ClusterQueue", "metadata": {"name": name}, "spec": {
                "namespaceSelector": {}, "cohortName": cohort, "queueingStrategy": "BestEffortFIFO",
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                    {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]}})
        };
        let mut engine = testing::engine(&[
            json!({"kind": "ResourceFlavor", "metadata": {"name": "default"}}),
            queue("research", "company"),
            queue("sales", "company"),
            queue("guests", "others"),
            json!({"kind": "LocalQueue", "metadata": {"name": "main", "namespace": "team"},
                "spec": {"clusterQueue": "research"}}),
            testing::workload("team", "large", "main", 6),
        ]);
        engine.schedule(Time::from_secs(1));
        let all = report(&engine, None);
        assert_eq!(all.quotas.len(), 3);
        let text = text(&all);
        assert!(
            text.ends_with("research borrows 2 cpu of default, from what sales did not use.\n"),
            "{text}"
        );
        let others = report(&engine, Some("others"));
        assert_eq!(others.quotas.len(), 1);
        assert!(super::text(&others).ends_with("Nobody borrows.\n"));
    }
}
