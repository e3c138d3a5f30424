"""From the runs of an experiment to what they say."""

from crg.report.evidence.captions import caption
from crg.report.evidence.reading import read_studies
from crg.report.evidence.sentences import findings_on, sentences_of, watermark
from crg.report.evidence.study import Study

__all__ = ["Study", "caption", "findings_on", "read_studies", "sentences_of", "watermark"]
