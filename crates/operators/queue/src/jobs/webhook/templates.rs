//! Topology requests of all templates of a job. Upstream's webhooks differ in what they check first, and in what they say
//! of requests that cannot be read.

use quintet_queue_engine::settings::Gates;

use super::super::json::TopologyOrder;
use super::{Template, topology};
use crate::validation::Errors;

/// Checks the templates of a job. The error says that it has no pod sets, because a request cannot be read.
pub(super) fn check(
    templates: &[Template<'_>],
    order: TopologyOrder,
    takes_groups: bool,
    gates: &Gates,
) -> Result<Errors, String> {
    let unreadable = templates.iter().find_map(|template| topology::unreadable(template, gates));
    let is_readable = unreadable.is_none();
    let of_template = |template: &Template<'_>, errors: &mut Errors| {
        topology::check(template, gates, errors);
        if is_readable {
            topology::check_sizes(template, errors);
        }
    };
    let of_groups = |errors: &mut Errors| {
        if takes_groups && is_readable {
            topology::check_groups(templates, errors);
        }
    };
    let mut errors = Errors::default();
    match (order, templates.split_first()) {
        (TopologyOrder::IfReadable, _) if !is_readable => {}
        (TopologyOrder::IfReadable | TopologyOrder::Templates, _) => {
            for template in templates {
                of_template(template, &mut errors);
            }
            of_groups(&mut errors);
        }
        (TopologyOrder::HeadAndGroups, Some((head, workers))) => {
            topology::check(head, gates, &mut errors);
            if is_readable {
                of_groups(&mut errors);
                topology::check_sizes(head, &mut errors);
                for worker in workers {
                    of_template(worker, &mut errors);
                }
            }
        }
        (TopologyOrder::Head, Some((head, workers))) => {
            of_template(head, &mut errors);
            of_groups(&mut errors);
            for worker in workers {
                of_template(worker, &mut errors);
            }
        }
        (_, None) => {}
    }
    match unreadable {
        Some(why) if errors.is_empty() => Err(why),
        _ => Ok(errors),
    }
}
