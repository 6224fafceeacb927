//! The images of a node: looks them up in the table, and makes what they need.

use std::io;
use std::path::{Path, PathBuf};

use super::files::{Bundle, Bundles};
use super::python::{Environment, EnvironmentError, Environments, requirements};
use super::table::Entry;
use super::{Addition, Image, Mapping, Reference, Runtime, Table, UnmappedImage};

/// Where programs are, unless the image says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where programs of ours are.
const OWN_PROGRAMS: &str = "/opt/quintet/bin";
/// Where containers see this program.
const QUINTET: &str = "/opt/quintet/bin/quintet";

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It is not a name of an image.
    #[error("couldn't parse image name {0:?}: invalid reference format")]
    InvalidName(String),
    /// Nothing is mapped to it.
    #[error(transparent)]
    Unmapped(#[from] UnmappedImage),
    /// What it stands for cannot be made.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// What it brings along cannot be written.
    #[error("cannot write the files of the image: {0}")]
    Files(#[from] io::Error),
}

/// The images of a node.
#[derive(Debug)]
pub struct Images {
    table: Table,
    environments: Environments,
    bundles: Bundles,
    /// This program.
    program: PathBuf,
}

impl Images {
    /// Images of `table`, whose own files are kept in `directory`; `program` runs in place of the image `quintet`.
    pub fn new(table: Table, environments: Environments, directory: PathBuf, program: PathBuf) -> Self {
        Self { table, environments, bundles: Bundles::new(directory), program }
    }

    /// The image, if nothing has to be made for it.
    pub fn present(&self, name: &str) -> Result<Option<Image>, ImageError> {
        let (reference, Entry { mapping, addition }) = self.find(name)?;
        if let Runtime::Python { packages } = &mapping.runtime {
            let existing = self.environments.existing(&requirements(packages, &reference));
            return Ok(existing.map(|environment| python(&reference, mapping, &environment)));
        }
        let Some(Addition::Files(bundle)) = addition else {
            return Ok(Some(self.simple(&reference, mapping, *addition)));
        };
        let existing = self.bundles.existing(bundle);
        Ok(existing.map(|directory| bundled(&reference, mapping, bundle, &directory)))
    }

    /// The image; what it needs is made first, which can take minutes.
    pub async fn pull(&self, name: &str) -> Result<Image, ImageError> {
        let (reference, Entry { mapping, addition }) = self.find(name)?;
        if let Runtime::Python { packages } = &mapping.runtime {
            let environment = self.environments.get(&requirements(packages, &reference)).await?;
            return Ok(python(&reference, mapping, &environment));
        }
        match addition {
            Some(Addition::Files(bundle)) => {
                Ok(bundled(&reference, mapping, bundle, &self.bundles.get(bundle)?))
            }
            _ => Ok(self.simple(&reference, mapping, *addition)),
        }
    }

    fn find(&self, name: &str) -> Result<(Reference, &Entry), ImageError> {
        let reference = Reference::parse(name).ok_or_else(|| ImageError::InvalidName(name.to_owned()))?;
        let entry = self.table.find(&reference)?;
        Ok((reference, entry))
    }

    /// An image of programs that are there.
    fn simple(&self, reference: &Reference, mapping: &Mapping, addition: Option<Addition>) -> Image {
        let target = match (&mapping.runtime, addition) {
            (Runtime::Quintet {}, _) => QUINTET,
            (_, Some(Addition::Program(path))) => path,
            _ => return base(reference, mapping, PATH),
        };
        let mut image = base(reference, mapping, &format!("{OWN_PROGRAMS}:{PATH}"));
        image.mounts.push((self.program.clone(), target.into()));
        image
    }
}

/// An image of programs that are there, and files of ours in a directory.
fn bundled(reference: &Reference, mapping: &Mapping, bundle: &Bundle, directory: &Path) -> Image {
    let mut image = base(reference, mapping, &format!("{OWN_PROGRAMS}:{PATH}"));
    let places = bundle.places.iter();
    image.mounts = places.map(|(part, target)| (directory.join(part), PathBuf::from(target))).collect();
    image
}

fn python(reference: &Reference, mapping: &Mapping, environment: &Environment) -> Image {
    let directory = &environment.directory;
    let mut image = base(reference, mapping, &format!("{}/bin:{PATH}", directory.display()));
    image.environment.push(("VIRTUAL_ENV".into(), directory.display().to_string()));
    let same = |path: &PathBuf| (path.clone(), path.clone());
    image.mounts = environment.interpreter.iter().chain([directory]).map(same).collect();
    image.bytes = environment.bytes;
    image
}

fn base(reference: &Reference, mapping: &Mapping, path: &str) -> Image {
    let home = mapping.home.as_deref().unwrap_or("/");
    let mut environment = vec![("PATH".to_owned(), path.to_owned()), ("HOME".to_owned(), home.to_owned())];
    environment.extend(mapping.environment.iter().map(|(name, value)| (name.clone(), value.clone())));
    Image {
        id: identifier(reference, mapping),
        environment,
        entrypoint: mapping.entrypoint.clone(),
        arguments: mapping.arguments.clone(),
        working_directory: Path::new(home).to_owned(),
        user: mapping.user,
        mounts: Vec::new(),
        bytes: 0,
    }
}

/// Changes when what the image stands for changes.
fn identifier(reference: &Reference, mapping: &Mapping) -> String {
    format!("{}@sha1:{}", reference.repository, super::digest(&format!("{reference} {mapping:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images() -> (tempfile::TempDir, Images) {
        let directory = tempfile::tempdir().unwrap();
        let environments = Environments::new(directory.path().join("environments"), true);
        let files = directory.path().join("images");
        (directory, Images::new(Table::new(Vec::new()), environments, files, "/here/quintet".into()))
    }

    fn variable(image: &Image, name: &str) -> String {
        let found = image.environment.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    #[test]
    fn programs_of_the_machine_are_always_present() {
        let (_directory, images) = images();
        let image = images.present("busybox:1.36").unwrap().unwrap();
        assert_eq!((image.entrypoint, image.arguments), (Vec::new(), vec!["/bin/sh".to_owned()]));
        assert_eq!(image.mounts, []);
    }

    #[test]
    fn this_program_is_in_the_path_of_its_image() {
        let (_directory, images) = images();
        let image = images.present("quintet:0.1.0").unwrap().unwrap();
        assert!(variable(&image, "PATH").starts_with("/opt/quintet/bin:"));
        assert_eq!(image.mounts, [("/here/quintet".into(), "/opt/quintet/bin/quintet".into())]);
    }

    #[test]
    fn the_model_registry_is_this_program() {
        let (_directory, images) = images();
        let image = images.present("quay.io/opendatahub/model-registry:latest").unwrap().unwrap();
        assert_eq!(image.mounts, [("/here/quintet".into(), "/model-registry".into())]);
    }

    #[tokio::test]
    async fn files_of_an_image_are_written_when_it_is_pulled() {
        let (directory, images) = images();
        let name = "quay.io/sclorg/postgresql-16-c10s:latest";
        assert_eq!(images.present(name).unwrap(), None);
        let image = images.pull(name).await.unwrap();
        assert_eq!((image.user, image.arguments.as_slice()), (Some(26), &["run-postgresql".to_owned()][..]));
        let (source, target) = &image.mounts[1];
        assert!(source.starts_with(directory.path()) && source.join("check-container").exists());
        assert_eq!(target, Path::new("/usr/libexec"));
        assert_eq!(images.present(name).unwrap(), Some(image));
    }

    #[tokio::test]
    async fn an_environment_that_must_not_be_made_is_an_error() {
        let (_directory, images) = images();
        assert_eq!(images.present("rayproject/ray:2.52.0").unwrap(), None);
        let error = images.pull("rayproject/ray:2.52.0").await.unwrap_err().to_string();
        assert!(error.contains("ray[default,serve]==2.52.0"), "{error}");
    }

    #[test]
    fn bad_names_are_not_looked_up() {
        let (_directory, images) = images();
        let error = images.present("no image").unwrap_err().to_string();
        assert_eq!(error, "couldn't parse image name \"no image\": invalid reference format");
    }

    #[test]
    fn the_identifier_changes_with_the_tag() {
        let (_directory, images) = images();
        let id = |name: &str| images.present(name).unwrap().unwrap().id;
        assert_eq!(id("busybox"), id("docker.io/library/busybox:latest"));
        assert_ne!(id("busybox:1"), id("busybox:2"));
    }
}
