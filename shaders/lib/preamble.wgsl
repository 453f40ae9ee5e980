// Dispatches are one-dimensional to the host, which folds more groups than a dimension holds into
// rows of `count.x`. A kernel leaves when this is not below `params.groups`.
fn group_index(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x + id.y * count.x;
}
