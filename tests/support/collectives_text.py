"""A module with explicit collectives, as tests of the bridge convert and run it."""

TEXT = """HloModule m

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (x: f32[4,2], i: s32[]) -> (f32[4,2], s32[], u32[]) {
  %x = f32[4,2]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  %i = s32[] parameter(1)
  %all = f32[4,2] all-reduce(%x), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=%sum, use_global_device_ids=true
  %next = s32[] collective-permute(%i), channel_id=2, source_target_pairs={{0,1},{1,0}}
  %me = u32[] partition-id()
  ROOT %t = (f32[4,2]{1,0}, s32[], u32[]) tuple(%all, %next, %me)
}
"""
