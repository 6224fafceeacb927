//! The images of a node: looks them up in the table, and makes what they need.

use std::path::{Path, PathBuf};

use super::python::{Environment, EnvironmentError, Environments, requirements};
use super::{Image, Mapping, Reference, Runtime, Table, UnmappedImage};

/// Where programs are, unless the image says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
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
}

/// The images of a node.
#[derive(Debug)]
pub struct Images {
    table: Table,
    environments: Environments,
    /// This program.
    program: PathBuf,
}

impl Images {
    /// Images of `table`; `program` runs in place of the image `quintet`.
    pub fn new(table: Table, environments: Environments, program: PathBuf) -> Self {
        Self { table, environments, program }
    }

    /// The image, if nothing has to be made for it.
    pub fn present(&self, name: &str) -> Result<Option<Image>, ImageError> {
        let (reference, mapping) = self.find(name)?;
        let Runtime::Python { packages } = &mapping.runtime else {
            return Ok(Some(self.simple(&reference, mapping)));
        };
        let existing = self.environments.existing(&requirements(packages, &reference));
        Ok(existing.map(|environment| python(&reference, mapping, &environment)))
    }

    /// The image; what it needs is made first, which can take minutes.
    pub async fn pull(&self, name: &str) -> Result<Image, ImageError> {
        let (reference, mapping) = self.find(name)?;
        let Runtime::Python { packages } = &mapping.runtime else {
            return Ok(self.simple(&reference, mapping));
        };
        let environment = self.environments.get(&requirements(packages, &reference)).await?;
        Ok(python(&reference, mapping, &environment))
    }

    fn find(&self, name: &str) -> Result<(Reference, &Mapping), ImageError> {
        let reference = Reference::parse(name).ok_or_else(|| ImageError::InvalidName(name.to_owned()))?;
        let mapping = self.table.find(&reference)?;
        Ok((reference, mapping))
    }

    /// An image of programs that are there.
    fn simple(&self, reference: &Reference, mapping: &Mapping) -> Image {
        let mut image = base(reference, mapping, PATH);
        if mapping.runtime == (Runtime::Quintet {}) {
            image = base(reference, mapping, &format!("/opt/quintet/bin:{PATH}"));
            image.mounts.push((self.program.clone(), QUINTET.into()));
        }
        image
    }
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
        let environments = Environments::new(directory.path().to_owned(), true);
        (directory, Images::new(Table::new(Vec::new()), environments, "/here/quintet".into()))
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
