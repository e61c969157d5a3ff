-- Layers (hex SHA-256) of the image that a build pulled, which the build owns beside its artifact, the image's document.
alter table build add column image_layers text[];
create index build_image_layers on build using gin (image_layers) where image_layers is not null;
