use quintet_controller::clock::Clock;

use super::{
    super::simulated::{Faults, SimulatedDashboard},
    *,
};

#[tokio::test(start_paused = true)]
async fn a_job_that_is_submitted_again_after_a_lost_answer_is_accepted_once() {
    for seed in 0..20 {
        let ray = SimulatedDashboard::new(Clock::simulated(Timestamp::UNIX_EPOCH), seed);
        ray.set_faults(Faults {
            silent: 20,
            refusing: 20,
            garbled: 10,
            lost_answers: 50,
            ..Faults::default()
        });
        let job = Submission { submission_id: "a".into(), ..Submission::default() };
        let at = address("ray", None);
        while !matches!(ray.submit(&at, &job).await, Ok(()) | Err(DashboardError::AlreadyUsed(_))) {}
        assert_eq!(ray.accepted("a"), 1, "seed {seed}");
        ray.restart("ray");
        ray.set_faults(Faults::default());
        assert_eq!(ray.job(&at, "a").await.unwrap(), None, "a restart forgets");
    }
}
