//! The certificate manager, in simulated time.

use std::{path::PathBuf, time::Duration};

use k8s_openapi::ByteString;
use quintet_controller::{
    ObjectKey,
    webhook::{CertificateManagerSettings, CertificateSource, Certificates, Publication, PublicationState},
};
use serde_json::json;

use super::*;
use crate::support::{process::Process, simulate};

const FIRST: &str = "/webhooks/0/clientConfig/caBundle";
const SECOND: &str = "/webhooks/1/clientConfig/caBundle";

async fn soon() {
    tokio::time::sleep(Duration::from_secs(30)).await;
}

#[test]
fn replicas_share_one_certificate_publish_it_and_rotate_it_without_a_gap() {
    simulate(async {
        let server = api_server(0);
        let processes: Vec<_> = (0..3).map(|_| Process::bare(&server, 0, None)).collect();
        let managers: Vec<_> = processes.iter().map(|process| start(process, settings())).collect();
        soon().await;
        create_all(&server);
        soon().await;
        let first = managers[0].served().unwrap();
        assert!(managers.iter().all(|manager| manager.missing().is_none()));
        assert!(managers.iter().all(|manager| manager.served().as_ref() == Some(&first)));
        for path in [FIRST, SECOND] {
            assert_eq!(bundle(&server, &validating(), path), first.ca);
        }
        assert_eq!(bundle(&server, &mutating(), FIRST), first.ca);
        assert_eq!(bundle(&server, &crd(CRD), CONVERSION_BUNDLE), first.ca);
        server.take_writes();
        tokio::time::sleep(Duration::from_hours(240 * 24)).await;
        assert!(server.take_writes().is_empty(), "nothing to do");

        // Two thirds of a year are over. Every replica is trusted at every moment of the rotation.
        for _ in 0..(10 * 24 * 2) {
            tokio::time::sleep(Duration::from_mins(30)).await;
            let published = bundle(&server, &validating(), SECOND);
            for (manager, process) in managers.iter().zip(&processes) {
                manager.served().unwrap().verify(&published, NAME, process.clock.now()).unwrap();
            }
        }
        let second = managers[0].served().unwrap();
        assert_ne!(second, first);
        assert!(managers.iter().all(|manager| manager.served().as_ref() == Some(&second)));
        assert!(second.ca.contains(first.newest_authority()), "the old one stays trusted until it expires");
        for process in processes {
            process.stop().await;
        }
    });
}

/// The Secret of [`settings`].
fn secret() -> Place {
    ("v1/secrets".to_owned(), "default".to_owned(), "certs".to_owned())
}

#[test]
fn a_deleted_or_damaged_secret_never_makes_a_replica_untrusted() {
    let delete = |server: &Server| server.store(|store| store.delete(&secret(), None).map(drop));
    let damage = |server: &Server| {
        let damaged = json!({"ca.crt": "", "tls.crt": "", "tls.key": ""});
        server.store(|store| {
            let change = |object: &mut Value| {
                object["data"] = damaged.clone();
                Ok(())
            };
            store.update(&secret(), false, change).map(drop)
        })
    };
    for harm in [&delete as &dyn Fn(&Server) -> _, &damage] {
        simulate(async {
            let server = api_server(1);
            create_all(&server);
            let processes: Vec<_> = (0..3).map(|_| Process::bare(&server, 1, None)).collect();
            let settings = CertificateManagerSettings { period: Duration::from_mins(1), ..settings() };
            let mut managers = Vec::new();
            for process in &processes {
                managers.push(start(process, settings.clone()));
                tokio::time::sleep(Duration::from_secs(20)).await;
            }
            let first = managers[0].served().unwrap();
            harm(&server).unwrap();
            for second in 0..180 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let published = bundle(&server, &validating(), FIRST);
                for (manager, process) in managers.iter().zip(&processes) {
                    let verified = manager.served().unwrap().verify(&published, NAME, process.clock.now());
                    assert!(verified.is_ok(), "after {second} s: {verified:?}");
                }
            }
            let second = managers[0].served().unwrap();
            assert_ne!(second, first);
            assert!(managers.iter().all(|manager| manager.served().as_ref() == Some(&second)));
            for process in processes {
                process.stop().await;
            }
        });
    }
}

#[test]
fn entries_of_other_services_are_not_touched() {
    simulate(async {
        let server = api_server(1);
        let kueue = ObjectKey::new("kueue-system", "kueue-webhook-service");
        let namesake = ObjectKey::new("elsewhere", service().name());
        let with_bundle = |mut config: Value| {
            config["caBundle"] = json!(ByteString(b"foreign".to_vec()));
            config
        };
        let foreign = [
            with_bundle(calls(&kueue)),
            with_bundle(calls(&namesake)),
            with_bundle(json!({"url": "https://quintet-webhooks.quintet.svc/x"})),
            json!({"url": "https://elsewhere.example/x"}),
        ];
        let mixed: Vec<_> = std::iter::once(with_bundle(calls(&service()))).chain(foreign.clone()).collect();
        create_webhooks(&server, &validating(), &mixed);
        create_webhooks(&server, &mutating(), &foreign);
        create_crd(&server, "workloads.kueue.x-k8s.io", &with_bundle(calls(&kueue)));
        create_crd(&server, CRD, &calls(&service()));
        let before = [mutating(), crd("workloads.kueue.x-k8s.io")].map(|place| object(&server, &place));

        let process = Process::bare(&server, 1, None);
        let mut settings = settings();
        settings.publications.push(Publication::Conversion("workloads.kueue.x-k8s.io".to_owned()));
        let manager = start(&process, settings);
        soon().await;
        let ca = manager.served().unwrap().ca;
        assert_eq!(bundle(&server, &validating(), FIRST), ca, "ours is replaced");
        assert_eq!(bundle(&server, &crd(CRD), CONVERSION_BUNDLE), ca);
        let webhooks = object(&server, &validating())["webhooks"].clone();
        for (index, config) in foreign.iter().enumerate() {
            assert_eq!(webhooks[index + 1]["clientConfig"], *config);
        }
        let after = [mutating(), crd("workloads.kueue.x-k8s.io")].map(|place| object(&server, &place));
        assert_eq!(after, before, "objects without an entry of ours are not written");
        let states: Vec<_> = manager.report().publications.into_iter().map(|report| report.state).collect();
        let (published, unreferenced) = (PublicationState::Published, PublicationState::Unreferenced);
        assert_eq!(states, [published.clone(), unreferenced.clone(), published, unreferenced]);
        process.stop().await;
    });
}

#[test]
fn an_absent_crd_does_not_keep_the_certificate_from_being_served() {
    simulate(async {
        let server = api_server(1);
        create_webhooks(&server, &validating(), &[calls(&service())]);
        let process = Process::bare(&server, 1, None);
        let manager = start(&process, settings());
        soon().await;
        assert_eq!(manager.missing(), None, "ready without the CRD");
        let ca = manager.served().unwrap().ca;
        assert_eq!(bundle(&server, &validating(), FIRST), ca);
        let absent: Vec<_> = manager.report().publications.into_iter().map(|report| report.state).collect();
        assert_eq!(absent, [PublicationState::Published, PublicationState::Absent, PublicationState::Absent]);

        create_crd(&server, CRD, &calls(&service()));
        soon().await;
        assert_eq!(bundle(&server, &crd(CRD), CONVERSION_BUNDLE), ca, "what appears later is followed");
        process.stop().await;
    });
}

#[test]
fn an_object_that_stays_absent_is_looked_for_every_minute_and_not_more_often() {
    simulate(async {
        let server = api_server(1);
        create_webhooks(&server, &validating(), &[calls(&service())]);
        create_webhooks(&server, &mutating(), &[json!({"url": "https://elsewhere.example/x"})]);
        let process = Process::bare(&server, 1, None);
        let manager =
            start(&process, CertificateManagerSettings { period: Duration::from_mins(1), ..settings() });
        tokio::time::sleep(Duration::from_mins(2)).await;
        server.take_requests();
        tokio::time::sleep(Duration::from_hours(1)).await;
        let requests = server.take_requests();
        let looked = requests.iter().filter(|request| request.contains(CRD)).count();
        assert!((55..=61).contains(&looked), "{looked} times in an hour");

        create_crd(&server, CRD, &calls(&service()));
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(bundle(&server, &crd(CRD), CONVERSION_BUNDLE), manager.served().unwrap().ca);
        process.stop().await;
    });
}

#[test]
fn a_forbidden_publication_does_not_stop_the_others() {
    simulate(async {
        let server = api_server(1);
        create_all(&server);
        server.with_faults(|faults| faults.forbidden = Some("validatingwebhookconfigurations"));
        let process = Process::bare(&server, 1, None);
        let manager = start(&process, settings());
        soon().await;
        assert_eq!(manager.missing(), None);
        let ca = manager.served().unwrap().ca;
        assert_eq!(bundle(&server, &mutating(), FIRST), ca);
        assert_eq!(bundle(&server, &crd(CRD), CONVERSION_BUNDLE), ca);
        let report = serde_json::to_value(manager.report()).unwrap();
        let failed = &report["publications"][0];
        assert_eq!(failed["kind"], "ValidatingWebhookConfiguration");
        assert_eq!(failed["state"], "failed");
        assert!(failed["error"].as_str().unwrap().contains("forbidden"), "{failed}");
        let metrics = process.registry.encode();
        let gauge = |kind| format!("quintet_webhook_ca_published{{kind=\"{kind}\",name=\"quintet\"}}");
        assert!(metrics.contains(&format!("{} 0", gauge("ValidatingWebhookConfiguration"))), "{metrics}");
        assert!(metrics.contains(&format!("{} 1", gauge("MutatingWebhookConfiguration"))), "{metrics}");

        server.with_faults(|faults| faults.forbidden = None);
        soon().await;
        assert_eq!(bundle(&server, &validating(), FIRST), ca, "published once it is allowed");
        process.stop().await;
    });
}

#[test]
fn a_rotation_waits_for_publications_that_fail_while_the_old_certificate_is_valid() {
    simulate(async {
        let server = api_server(1);
        create_all(&server);
        let process = Process::bare(&server, 1, None);
        let settings = CertificateManagerSettings { retry: Duration::from_hours(6), ..settings() };
        let manager = start(&process, settings);
        soon().await;
        let first = manager.served().unwrap();
        server.with_faults(|faults| faults.forbidden = Some("validatingwebhookconfigurations"));
        tokio::time::sleep(Duration::from_hours(300 * 24)).await;
        assert_eq!(manager.served().unwrap(), first, "the validating webhooks do not trust the new one yet");
        server.with_faults(|faults| faults.forbidden = None);
        tokio::time::sleep(Duration::from_hours(7)).await;
        let second = manager.served().unwrap();
        assert_ne!(second, first);
        assert_eq!(bundle(&server, &validating(), FIRST), second.ca);
        process.stop().await;
    });
}

#[test]
fn certificates_in_a_directory_are_served_and_reloaded() {
    simulate(async {
        let server = api_server(1);
        create_all(&server);
        let process = Process::bare(&server, 1, None);
        let directory = temporary_directory("certificates");
        let write = |certificates: &Certificates| {
            std::fs::write(directory.join("tls.crt"), &certificates.certificate).unwrap();
            std::fs::write(directory.join("tls.key"), &certificates.key).unwrap();
        };
        let publish = |ca: &str| {
            let ca = json!(ByteString(ca.as_bytes().to_vec()));
            let published = server.store(|store| {
                store.update(&validating(), false, |object| {
                    for webhook in object["webhooks"].as_array_mut().unwrap() {
                        webhook["clientConfig"]["caBundle"] = ca.clone();
                    }
                    Ok(())
                })
            });
            published.unwrap();
        };
        let issue = || {
            let lifetime = Duration::from_hours(48);
            Certificates::issue(&[NAME.to_owned()], process.clock.now(), lifetime, "").unwrap()
        };
        let settings = CertificateManagerSettings {
            source: CertificateSource::Directory(directory.clone()),
            publications: vec![Publication::Validating("quintet".to_owned())],
            period: Duration::from_secs(10),
            ..settings()
        };
        let manager = start(&process, settings);
        let state = || manager.report().publications[0].state.clone();
        soon().await;
        assert!(manager.missing().unwrap().contains("tls.crt"), "{:?}", manager.missing());
        let first = issue();
        write(&first);
        soon().await;
        assert_eq!(manager.missing(), None);
        let PublicationState::Failed { error } = state() else { panic!("{:?}", state()) };
        assert!(
            error.contains("does not trust quintet-webhooks.quintet.svc by ValidatingWebhookConfiguration"),
            "{error}"
        );
        publish(&first.ca);
        soon().await;
        assert_eq!(state(), PublicationState::Published);
        // A certificate without its key must not be served.
        let second = issue();
        std::fs::write(directory.join("tls.crt"), &second.certificate).unwrap();
        soon().await;
        let report = manager.report();
        assert!(report.error.as_ref().unwrap().contains("does not fit"), "{report:?}");
        assert_eq!(manager.served().unwrap().key, first.key);
        write(&second);
        publish(&second.ca);
        soon().await;
        assert_eq!((manager.report().error, manager.served().unwrap().key), (None, second.key));
        assert!(server.take_writes().is_empty(), "another program publishes the CA");
        process.stop().await;
        std::fs::remove_dir_all(directory).unwrap();
    });
}

fn temporary_directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("quintet-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}
