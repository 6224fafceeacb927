//! The machinery every operator shares: caches, work queue, observe/plan/apply, webhooks, leader election.
