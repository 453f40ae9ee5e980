//! Pictures without a window: egui drawn into a texture of an adapter of its own.

use crate::export;
use eframe::egui::{self, Pos2, RawInput, Rect, Vec2};
use eframe::egui_wgpu::{
    RenderState, Renderer, RendererOptions, ScreenDescriptor, WgpuConfiguration, WgpuSetup, WgpuSetupCreateNew,
};
use eframe::wgpu;
use std::path::Path;

/// An adapter and a size.
pub struct Canvas {
    state: RenderState,
    size: [u32; 2],
    /// Pixels of a point.
    scale: f32,
}

/// Most pixels of a side: what adapters have at least.
pub const MOST_PIXELS: u32 = 8192;

fn device(backends: wgpu::Backends) -> Result<RenderState, String> {
    let mut setup = WgpuSetupCreateNew::without_display_handle();
    setup.instance_descriptor.backends = backends;
    let setup = WgpuSetup::CreateNew(setup);
    let instance = pollster::block_on(setup.new_instance());
    let config = WgpuConfiguration { wgpu_setup: setup, ..WgpuConfiguration::default() };
    let state = RenderState::create(&config, &instance, None, RendererOptions::PREDICTABLE);
    pollster::block_on(state).map_err(|e| e.to_string())
}

impl Canvas {
    /// A canvas of `size` pixels.
    ///
    /// # Errors
    /// A size without pixels or above [`MOST_PIXELS`], or no adapter, in words.
    pub fn new(size: [u32; 2], scale: f32) -> Result<Self, String> {
        if size.iter().any(|side| *side < 64 || *side > MOST_PIXELS) {
            return Err(format!("{}x{}: a picture has 64 to {MOST_PIXELS} pixels a side", size[0], size[1]));
        }
        // OpenGL only where there is nothing better: without a screen its drivers complain on standard error.
        let state = device(wgpu::Backends::PRIMARY).or_else(|_| device(wgpu::Backends::all())).map_err(|e| {
            format!("nothing here can draw a picture: {e}; Debian's package mesa-vulkan-drivers draws on the CPU")
        })?;
        Ok(Canvas { state, size, scale })
    }

    /// What egui takes as input for a frame at `time` seconds.
    pub fn input(&self, time: f64) -> RawInput {
        let points = Vec2::new(self.size[0] as f32, self.size[1] as f32) / self.scale;
        let mut input = RawInput {
            screen_rect: Some(Rect::from_min_size(Pos2::ZERO, points)),
            time: Some(time),
            predicted_dt: 1.0 / 60.0,
            focused: true,
            max_texture_side: Some(MOST_PIXELS as usize),
            ..RawInput::default()
        };
        input.viewports.entry(input.viewport_id).or_default().native_pixels_per_point = Some(self.scale);
        input
    }

    /// Runs frames until `done`, at least two, and paints the last one: RGBA bytes.
    ///
    /// # Errors
    /// What the device says, in words.
    pub fn draw(
        &self,
        context: &egui::Context,
        frames: usize,
        mut ui: impl FnMut(&mut egui::Ui),
    ) -> Result<Vec<u8>, String> {
        let mut last = None;
        for frame in 0..frames.max(2) {
            let mut output = context.run_ui(self.input(frame as f64 / 60.0), &mut ui);
            self.textures(&mut output.textures_delta);
            last = Some(output);
        }
        let output = last.ok_or("no frame was drawn")?;
        let primitives = context.tessellate(output.shapes, output.pixels_per_point);
        self.paint(&primitives)
    }

    /// Takes in what became of textures.
    pub fn textures(&self, delta: &mut egui::TexturesDelta) {
        let RenderState { device, queue, renderer, .. } = &self.state;
        let mut renderer = renderer.write();
        for (id, images) in delta.set.drain() {
            for image in images {
                renderer.update_texture(device, queue, id, &image);
            }
        }
        for id in delta.free.drain() {
            renderer.free_texture(&id);
        }
    }

    fn screen(&self) -> ScreenDescriptor {
        ScreenDescriptor { size_in_pixels: self.size, pixels_per_point: self.scale }
    }

    /// Sends the triangles to the device and paints nothing: what a frame costs before the rasteriser.
    pub fn upload(&self, primitives: &[egui::ClippedPrimitive]) {
        let RenderState { device, queue, renderer, .. } = &self.state;
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let own = renderer.write().update_buffers(device, queue, &mut encoder, primitives, &self.screen());
        queue.submit(own.into_iter().chain([encoder.finish()]));
    }

    fn paint(&self, primitives: &[egui::ClippedPrimitive]) -> Result<Vec<u8>, String> {
        let RenderState { device, queue, renderer, target_format, .. } = &self.state;
        let [width, height] = self.size;
        let size = wgpu::Extent3d { width, height, depth_or_array_layers: 1 };
        let texture = device.create_texture(&wgpu::TextureDescriptor {
            label: Some("picture"),
            size,
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: *target_format,
            usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
            view_formats: &[],
        });
        let view = texture.create_view(&wgpu::TextureViewDescriptor::default());
        let row = (width * 4).next_multiple_of(wgpu::COPY_BYTES_PER_ROW_ALIGNMENT);
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("picture"),
            size: u64::from(row) * u64::from(height),
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
            mapped_at_creation: false,
        });
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut renderer = renderer.write();
        let own = renderer.update_buffers(device, queue, &mut encoder, primitives, &self.screen());
        self.pass(&renderer, &mut encoder, &view, primitives);
        encoder.copy_texture_to_buffer(
            texture.as_image_copy(),
            wgpu::TexelCopyBufferInfo {
                buffer: &buffer,
                layout: wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(row), rows_per_image: None },
            },
            size,
        );
        queue.submit(own.into_iter().chain([encoder.finish()]));
        let (sender, receiver) = std::sync::mpsc::channel();
        buffer.map_async(wgpu::MapMode::Read, .., move |mapped| drop(sender.send(mapped)));
        device.poll(wgpu::PollType::wait_indefinitely()).map_err(|e| e.to_string())?;
        let mapped = receiver.recv().map_err(|e| e.to_string())?;
        mapped.map_err(|e| e.to_string())?;
        let bytes = buffer.get_mapped_range(..).map_err(|e| e.to_string())?;
        let swap = matches!(target_format, wgpu::TextureFormat::Bgra8Unorm | wgpu::TextureFormat::Bgra8UnormSrgb);
        let mut rgba = Vec::with_capacity((width * height * 4) as usize);
        for line in bytes.chunks(row as usize) {
            rgba.extend_from_slice(&line[..(width * 4) as usize]);
        }
        for texel in rgba.chunks_exact_mut(4) {
            if swap {
                texel.swap(0, 2);
            }
            texel[3] = 255;
        }
        Ok(rgba)
    }

    fn pass(
        &self,
        renderer: &Renderer,
        encoder: &mut wgpu::CommandEncoder,
        view: &wgpu::TextureView,
        primitives: &[egui::ClippedPrimitive],
    ) {
        let attachment = wgpu::RenderPassColorAttachment {
            view,
            depth_slice: None,
            resolve_target: None,
            ops: wgpu::Operations { load: wgpu::LoadOp::Clear(wgpu::Color::BLACK), store: wgpu::StoreOp::Store },
        };
        let mut pass = encoder
            .begin_render_pass(&wgpu::RenderPassDescriptor {
                label: Some("picture"),
                color_attachments: &[Some(attachment)],
                ..Default::default()
            })
            .forget_lifetime();
        renderer.render(&mut pass, primitives, &self.screen());
    }

    /// Draws frames and writes the last one.
    ///
    /// # Errors
    /// As [`Canvas::draw`], and what the system says of the file.
    pub fn save(&self, context: &egui::Context, ui: impl FnMut(&mut egui::Ui), path: &Path) -> Result<(), String> {
        let rgba = self.draw(context, 6, ui)?;
        export::write_png(self.size.map(|side| side as usize), &rgba, path)
    }
}
